//! Some queries and one block: scores, exponentials, weighted values.

use std::ops::Range;

use hf2q_plan::PAGE;

use super::block::Block;
use super::product::{Product, Strided, product};
use super::softmax::update;
use super::task::Task;
use super::{Buffers, Keys, MOST, Parts, Source, TILE, lanes, scaled};
use crate::simd::{LANES, Simd};

/// Queries that are multiplied together, counted within the batch.
struct Tile {
    queries: Range<usize>,
    /// Positions of the block that some of them see.
    some: (usize, usize),
    /// Positions that all of them see.
    all: (usize, usize),
}

impl<S: Simd> Task<'_, S> {
    /// Adds one block to some queries.
    #[inline(always)]
    pub(super) fn batch(
        &self,
        (source, block): (&Source, &Block),
        queries: Range<usize>,
        buffers: &mut Buffers,
    ) {
        let count = queries.len();
        buffers.scores.resize(buffers.scores.len().max(count * PAGE), 0.0);
        buffers.partial.resize(buffers.scores.len(), 0.0);
        match &source.keys {
            Keys::Parts(parts) => self.scores_of_parts(parts, block, (queries.clone(), buffers)),
            _ => self.scores((source, block), (queries.clone(), buffers)),
        }
        self.exponentials(block, (queries.clone(), buffers));
        self.values(block, (queries, buffers));
    }

    /// The tile that begins with query `start` of a batch.
    #[inline(always)]
    fn tile(&self, batch: &Range<usize>, start: usize, block: usize) -> Tile {
        let seen = |query: usize| {
            let Range { start, end } = self.seen(self.row_of(batch.start + query), block);
            (start, end)
        };
        let count = batch.len();
        let (first, last) = (seen(start), seen(count - 1));
        let (end, last) = match first == last {
            true => (count, last),
            false => {
                let end = count.min(start + TILE);
                (end, seen(end - 1))
            }
        };
        // Positions ascend, so do the ends of what is seen.
        Tile { queries: start..end, some: (first.0, last.1), all: (last.0, first.1) }
    }

    /// Dot products with all keys of a block that some query sees.
    #[inline(always)]
    fn scores(&self, (source, block): (&Source, &Block), (batch, buffers): (Range<usize>, &mut Buffers)) {
        let (s, head_dim, keys) = (self.s, self.call.shape.head_dim, &block.keys);
        let Buffers { scores, partial, queries, .. } = buffers;
        let queries = match (&source.keys, source.rotations.keys) {
            (Keys::Stored, Some(_)) => &queries.rotated,
            _ => &queries.plain,
        };
        let scaled = keys.scale_count > 0;
        let each = if scaled { keys.block } else { keys.elements.rows };
        let whole = Product::whole(keys.elements, block.next.map(|next| next.0));
        let mut first = 0;
        while first < keys.elements.rows {
            let mut query = 0;
            while query < batch.len() {
                let Tile { queries: tile, some, .. } = self.tile(&batch, query, block.index);
                let columns = (some.0 / LANES * LANES, some.1.next_multiple_of(LANES));
                let p = Product { inner: (first, first + each), columns, anew: true, ..whole };
                let a = Strided { values: &queries[(batch.start + query) * head_dim..], stride: head_dim };
                let to = if scaled { &mut *partial } else { &mut *scores };
                product(s, tile.len(), a, &p, (&mut to[query * PAGE..], PAGE));
                query = tile.end;
            }
            if scaled {
                let len = batch.len() * PAGE;
                scaled::add(s, &partial[..len], (keys, first / each), &mut scores[..len]);
            }
            first += each;
        }
    }

    /// The same with keys of which one part is formed, for a tile of queries.
    #[inline(always)]
    fn scores_of_parts(&self, parts: &Parts, block: &Block, (batch, buffers): (Range<usize>, &mut Buffers)) {
        let (s, head_dim, width, count) = (self.s, self.call.shape.head_dim, parts.block(), batch.len());
        let mut inputs = [&[][..]; MOST];
        for (query, input) in batch.zip(&mut inputs) {
            *input = &buffers.queries.rotated[query * head_dim..(query + 1) * head_dim];
        }
        buffers.turned.resize(MOST * width, 0.0);
        parts.turn_back(s, block.index, &inputs[..count], &mut buffers.turned);
        let mut queries: [lanes::Query<'_>; MOST] = [[&[]; 2]; MOST];
        for (i, turned) in buffers.turned.chunks_exact(width).enumerate() {
            queries[i] = [turned, inputs[i]];
        }
        lanes::scores(s, &queries[..count], block, &mut buffers.scores[..count * PAGE]);
    }

    /// Scores become exponentials, and these the weights of values.
    #[inline(always)]
    fn exponentials(&self, block: &Block, (batch, buffers): (Range<usize>, &mut Buffers)) {
        let (s, stride) = (self.s, self.call.stride());
        let each = block.values.scale_count * PAGE;
        buffers.weights.resize(buffers.weights.len().max(batch.len() * each), 0.0);
        for (i, query) in batch.enumerate() {
            let Range { start, end } = self.seen(self.row_of(query), block.index);
            let scores = &mut buffers.scores[i * PAGE..(i + 1) * PAGE];
            let sums = &mut buffers.part.values[query * stride..(query + 1) * stride];
            let running = (&mut buffers.part.running[query], sums);
            update(s, (scores, (start, end)), &self.call.scores, running);
            if each > 0 {
                scaled::weights(s, scores, &block.values, &mut buffers.weights[i * each..(i + 1) * each]);
            }
        }
    }

    /// Adds weighted values: the positions that all queries of a tile see together, the rest for each query.
    #[inline(always)]
    fn values(&self, block: &Block, (batch, buffers): (Range<usize>, &mut Buffers)) {
        let (s, stride, stored) = (self.s, self.call.stride(), &block.values);
        let (weights, each) = match stored.scale_count {
            0 => (&buffers.scores, PAGE),
            n => (&buffers.weights, n * PAGE),
        };
        let sums = &mut buffers.part.values;
        let mut p = Product::whole(stored.elements, block.next.map(|next| next.1));
        p.block = (stored.scale_count > 0).then_some(stored.block);
        let mut add = |queries: Range<usize>, inner| {
            let a = Strided { values: &weights[queries.start * each..], stride: each };
            let to = &mut sums[(batch.start + queries.start) * stride..];
            product(s, queries.len(), a, &Product { inner, ..p }, (to, stride));
        };
        let mut query = 0;
        while query < batch.len() {
            let Tile { queries, some, all } = self.tile(&batch, query, block.index);
            query = queries.end;
            // Nothing in between, if there is no position that all see.
            let (low, high) = if all.0 < all.1 { all } else { (PAGE, PAGE) };
            let seen = |i: usize| self.seen(self.row_of(batch.start + i), block.index);
            if some.0 < low {
                queries.clone().for_each(|i| add(i..i + 1, (seen(i).start, seen(i).end.min(low))));
            }
            add(queries.clone(), (low, high));
            if high < some.1 {
                queries.for_each(|i| add(i..i + 1, (high, seen(i).end)));
            }
        }
    }
}
