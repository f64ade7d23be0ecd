//! Attention over cached keys and values.
//!
//! A row's keys are visited in ascending position in blocks of [`PAGE`]. Per block and query head: scores, each one
//! chain of multiply-adds along the head; the new maximum; the old sums rescaled; the block's exponentials added in a
//! fixed tree, its values in ascending position. Positions that a row does not see take no part. All of that is the
//! row's own, so it does not matter which rows and heads are computed together.
//!
//! Packed codes are read as they lie in the cache. Where keys are stored rotated, so is the query, once; where values
//! are, their sum is rotated back, once. Where only values are stored, a block's keys are formed of them once for all
//! queries of the unit; where these are cut, of one block of components, and codes serve for the others.
//!
//! Where the last pages are kept a second time, the rows that see a block as recent come before those that see it as
//! coded, and each of both parts is computed with its own storage. A row's recent blocks are its last ones: before the
//! first of them its sum changes to the basis of the values there.

mod block;
mod element;
mod form;
mod lanes;
mod parts;
mod product;
mod scaled;
mod softmax;

use std::ops::Range;

use hf2q_plan::{Cut, PAGE, Span};
use hf2q_quant::kv::{rotate, rotate_back};

use self::block::{Block, Stored};
pub(crate) use self::form::Former;
pub(crate) use self::parts::Parts;
use self::product::{Product, product};
use self::softmax::{Running, update};
use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd};
use crate::step::{Chunk, StepData};

/// See [`hf2q_plan::Attention`]. A unit is a chunk of rows and some query heads that share a KV head; the chunks that
/// see most come first.
pub(crate) struct Attention {
    pub(crate) q: Operand,
    pub(crate) out: Operand,
    pub(crate) cache: Source,
    /// Where rows find the blocks of their last pages.
    pub(crate) recent: Option<Source>,
    pub(crate) shape: Shape,
    pub(crate) scores: ScoreParams,
    pub(crate) threads: usize,
}

/// A cache that is attended to.
pub(crate) struct Source {
    pub(crate) cache: usize,
    pub(crate) group: usize,
    pub(crate) span: Span,
    pub(crate) rotations: Rotations,
    pub(crate) keys: Keys,
}

/// Where the keys of a cache come from.
pub(crate) enum Keys {
    Stored,
    /// They are formed of values.
    Formed(Former),
    /// The same for values that are cut: one part is formed.
    Parts(Parts),
}

/// Heads and their width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

/// Components that are stored rotated together, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotations {
    pub(crate) keys: Option<usize>,
    pub(crate) values: Option<Basis>,
}

impl Keys {
    /// Estimated nanoseconds in which the key of a position is formed.
    fn nanoseconds(&self) -> f32 {
        match self {
            Self::Stored => 0.0,
            Self::Formed(former) => 0.5 * former.head_dim() as f32,
            Self::Parts(parts) => 0.3 * parts.block() as f32,
        }
    }
}

/// How values are stored that are rotated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis {
    /// Components that are rotated together.
    pub(crate) block: usize,
    /// The order of components.
    pub(crate) cut: Option<Cut>,
}

impl Basis {
    /// Brings a vector into it.
    #[inline(always)]
    fn enter(&self, x: &mut [f32], spare: &mut Vec<f32>) {
        if let Some(cut) = &self.cut {
            spare.resize(x.len(), 0.0);
            spare.copy_from_slice(x);
            cut.sort(spare, x);
        }
        x.chunks_exact_mut(self.block).for_each(rotate);
    }

    /// Brings a vector out of it.
    #[inline(always)]
    fn leave(&self, x: &mut [f32], spare: &mut Vec<f32>) {
        x.chunks_exact_mut(self.block).for_each(rotate_back);
        if let Some(cut) = &self.cut {
            spare.resize(x.len(), 0.0);
            spare.copy_from_slice(x);
            cut.unsort(spare, x);
        }
    }
}

/// What is done to a dot product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreParams {
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct Buffers {
    /// `[queries][PAGE]`: scores, then exponentials.
    scores: Vec<f32>,
    /// `[queries][PAGE]`: scores by a part of the components.
    partial: Vec<f32>,
    /// `[queries][scales][PAGE]`: exponentials times scales of values.
    weights: Vec<f32>,
    /// `[queries][head_dim]`: queries in the basis of keys.
    rotated: Vec<f32>,
    /// `[queries][block]`: what of them is multiplied by components that are formed.
    turned: Vec<f32>,
    /// A vector.
    spare: Vec<f32>,
    /// `[queries][padded head_dim]`: weighted sums of values.
    sums: Vec<f32>,
    running: Vec<Running>,
    block: block::Buffers,
}

/// What one unit computes. Query `i` is head `heads.start + i % heads.len()` of row `rows.start + i / heads.len()`.
struct Unit {
    /// Rows of the step.
    rows: Range<usize>,
    /// The row of the queries, and of what is written, that belongs to the first of `rows`.
    at: usize,
    kv_head: usize,
    heads: Range<usize>,
}

/// Queries that are computed together.
const TILE: usize = 6;

/// The same where that is all of them and what is read of a key serves so many.
const MOST: usize = 8;

impl Attention {
    /// Parts into which the query heads of a KV head are cut where there are few chunks.
    fn parts(&self, step: &StepData) -> usize {
        let sharing = self.shape.heads / self.shape.kv_heads;
        let units = (step.chunks(self.q.rows).len() * self.shape.kv_heads).max(1);
        let wanted = self.threads.div_ceil(units).min(sharing);
        // Parts of equal size.
        (1..=wanted).rev().find(|&n| sharing.is_multiple_of(n)).unwrap_or(1)
    }

    fn unit(&self, step: &StepData, unit: usize) -> Unit {
        let parts = self.parts(step);
        let per_chunk = parts * self.shape.kv_heads;
        let chunks = step.chunks(self.q.rows);
        let Chunk { rows, at } = chunks[chunks.len() - 1 - unit / per_chunk].clone();
        let kv_head = unit % per_chunk / parts;
        let sharing = self.shape.heads / self.shape.kv_heads;
        let each = sharing / parts;
        let first = kv_head * sharing + unit % parts * each;
        Unit { rows, at, kv_head, heads: first..first + each }
    }
}

impl Attention {
    /// Positions that some of these rows see.
    fn positions(&self, step: &StepData, rows: &Range<usize>) -> usize {
        let visible = |row| step.visible(self.cache.span, row);
        if rows.is_empty() { 0 } else { visible(rows.end - 1).end - visible(rows.start).start }
    }
}

impl VectorCall for Attention {
    fn work(&self, step: &StepData) -> Work {
        let parts = self.parts(step);
        let chunks = step.chunks(self.q.rows);
        let units = chunks.len() * self.shape.kv_heads * parts;
        let rows = chunks.iter().flat_map(|c| c.rows.clone());
        let seen: usize = rows.map(|r| step.visible(self.cache.span, r).len()).sum();
        let total = (seen * self.shape.heads) as f32 * (self.shape.head_dim as f32 * 0.05 + 2.0);
        // Keys are formed once for all rows of a unit.
        let formed: usize = chunks.iter().map(|c| self.positions(step, &c.rows)).sum();
        let total = total + (formed * self.shape.kv_heads * parts) as f32 * self.cache.keys.nanoseconds();
        Work::new(units, total / units.max(1) as f32)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        for unit in units {
            let unit = self.unit(cx.step, unit);
            Running::start(&mut scratch.attention, unit.rows.len() * unit.heads.len(), self.stride());
            let work = Task { call: self, cx, unit, s };
            work.rotate_queries(&mut scratch.attention.rotated);
            work.blocks(&mut scratch.attention);
            work.finish(&mut scratch.attention);
        }
    }
}

impl Attention {
    fn stride(&self) -> usize {
        self.shape.head_dim.next_multiple_of(LANES)
    }
}

/// A unit being computed.
struct Task<'a, S> {
    call: &'a Attention,
    cx: &'a Context<'a>,
    unit: Unit,
    s: S,
}

impl<S: Simd> Task<'_, S> {
    /// All blocks that a row of the unit sees.
    #[inline(always)]
    fn blocks(&self, buffers: &mut Buffers) {
        let Range { start, end } = self.unit.rows;
        let first = self.first_block(start);
        let last = self.cx.step.position(end - 1) / PAGE;
        let mut i = first;
        while i <= last {
            let mut rows = self.rows_seeing(i);
            if let Some(recent) = &self.call.recent {
                let middle = self.rows_since(recent, i, rows.clone());
                self.change_basis(recent, i, (rows.start..middle, buffers));
                self.part(recent, i, (rows.start..middle, buffers));
                rows.start = middle;
            }
            self.part(&self.call.cache, i, (rows, buffers));
            i += 1;
        }
    }

    /// One block, as it lies in one cache, and some rows that see it.
    #[inline(always)]
    fn part(&self, source: &Source, i: usize, (rows, buffers): (Range<usize>, &mut Buffers)) {
        if rows.is_empty() {
            return;
        }
        let (start, sharing) = (self.unit.rows.start, self.unit.heads.len());
        let mut held = std::mem::take(&mut buffers.block);
        let queries = rows.len() * sharing;
        let block = Block::find(self.s, self.cx, (self.call, source, &self.unit), (i, queries), &mut held);
        let tile = if matches!(source.keys, Keys::Parts(_)) && queries <= MOST { MOST } else { TILE };
        let mut query = (rows.start - start) * sharing;
        let end = (rows.end - start) * sharing;
        while query < end {
            let count = (end - query).min(tile);
            self.tile((source, &block), query..query + count, buffers);
            query += count;
        }
        buffers.block = held;
    }

    /// The first block that a row sees.
    #[inline(always)]
    fn first_block(&self, row: usize) -> usize {
        self.cx.step.visible(self.call.cache.span, row).start / PAGE
    }

    /// The end of those of `rows` for which block `i` is recent. They come first: positions ascend.
    #[inline(always)]
    fn rows_since(&self, recent: &Source, i: usize, rows: Range<usize>) -> usize {
        let mut end = rows.start;
        while end < rows.end && self.cx.step.visible(recent.span, end).start <= i * PAGE {
            end += 1;
        }
        end
    }

    /// Brings the sums of those of `rows` whose first recent block is `i`, and that have seen others, into the basis of its
    /// values.
    #[inline(always)]
    fn change_basis(&self, recent: &Source, i: usize, (rows, buffers): (Range<usize>, &mut Buffers)) {
        let (from, to) = (self.call.cache.rotations.values, recent.rotations.values);
        let Some(basis) = from.xor(to) else { return };
        let (stride, sharing) = (self.call.stride(), self.unit.heads.len());
        for row in rows {
            if self.cx.step.visible(recent.span, row).start != i * PAGE || self.first_block(row) >= i {
                continue;
            }
            let first = (row - self.unit.rows.start) * sharing;
            for sums in buffers.sums[first * stride..(first + sharing) * stride].chunks_exact_mut(stride) {
                let sums = &mut sums[..self.call.shape.head_dim];
                let spare = &mut buffers.spare;
                if from.is_some() { basis.leave(sums, spare) } else { basis.enter(sums, spare) }
            }
        }
    }

    /// Rows of the unit that see a position of block `i`. Positions ascend, so they lie side by side.
    #[inline(always)]
    fn rows_seeing(&self, i: usize) -> Range<usize> {
        let Range { mut start, mut end } = self.unit.rows;
        while start < end && self.seen(start, i).is_empty() {
            start += 1;
        }
        while start < end && self.seen(end - 1, i).is_empty() {
            end -= 1;
        }
        start..end
    }

    /// Keys of block `i` that a row sees, counted within the block.
    #[inline(always)]
    fn seen(&self, row: usize, i: usize) -> Range<usize> {
        let visible = self.cx.step.visible(self.call.cache.span, row);
        let first = i * PAGE;
        let low = visible.start.max(first) - first;
        low..visible.end.clamp(first, first + PAGE) - first
    }

    /// The row of the step.
    #[inline(always)]
    fn row_of(&self, query: usize) -> usize {
        self.unit.rows.start + query / self.unit.heads.len()
    }

    /// The row of the queries and of what is written.
    #[inline(always)]
    fn operand_row_of(&self, query: usize) -> usize {
        self.unit.at + query / self.unit.heads.len()
    }

    /// Queries in the basis of keys that are stored rotated.
    #[inline(always)]
    fn rotate_queries(&self, rotated: &mut Vec<f32>) {
        rotated.clear();
        let sources = [Some(&self.call.cache), self.call.recent.as_ref()];
        for source in sources.into_iter().flatten() {
            if let Keys::Parts(parts) = &source.keys {
                for query in 0..self.unit.rows.len() * self.unit.heads.len() {
                    parts.prepare(self.query(query), rotated);
                }
                return;
            }
        }
        let recent = self.call.recent.as_ref().and_then(|recent| recent.rotations.keys);
        // Heads have one size, so what is rotated is rotated in the same blocks.
        let Some(block) = self.call.cache.rotations.keys.or(recent) else { return };
        for query in 0..self.unit.rows.len() * self.unit.heads.len() {
            let first = rotated.len();
            rotated.extend_from_slice(self.query(query));
            for x in rotated[first..].chunks_exact_mut(block) {
                rotate(x);
            }
        }
    }

    /// A query as it was computed.
    #[inline(always)]
    fn query(&self, query: usize) -> &[f32] {
        let head = self.unit.heads.start + query % self.unit.heads.len();
        let head_dim = self.call.shape.head_dim;
        let columns = head * head_dim..(head + 1) * head_dim;
        self.cx.view(self.call.q.place).columns(self.operand_row_of(query), columns)
    }

    /// Adds one block to some queries.
    #[inline(always)]
    fn tile(&self, (source, block): (&Source, &Block), queries: Range<usize>, buffers: &mut Buffers) {
        let (s, head_dim) = (self.s, self.call.shape.head_dim);
        let count = queries.len();
        let mut inputs = [&[][..]; MOST];
        let mut seen = [(0, 0); MOST];
        let mut common = (0, PAGE);
        for (i, query) in queries.clone().enumerate() {
            inputs[i] = match (&source.keys, source.rotations.keys) {
                (Keys::Stored, Some(_)) | (Keys::Parts(_), _) => {
                    &buffers.rotated[query * head_dim..(query + 1) * head_dim]
                }
                _ => self.query(query),
            };
            let Range { start, end } = self.seen(self.row_of(query), block.index);
            seen[i] = (start, end);
            common = (common.0.max(start), common.1.min(end));
        }
        let scores = &mut buffers.scores[..count * PAGE];
        match &source.keys {
            Keys::Parts(parts) => {
                let width = parts.block();
                buffers.turned.resize(MOST * width, 0.0);
                parts.turn_back(s, block.index, &inputs[..count], &mut buffers.turned);
                let mut queries: [lanes::Query<'_>; MOST] = [[&[]; 2]; MOST];
                for (i, turned) in buffers.turned.chunks_exact(width).enumerate() {
                    queries[i] = [turned, inputs[i]];
                }
                lanes::scores(s, &queries[..count], block, scores);
            }
            _ => {
                let partial = &mut buffers.partial[..count * PAGE];
                scaled::scores(s, &inputs[..count], &block.keys, (scores, partial));
            }
        }
        let stride = self.call.stride();
        let sums = &mut buffers.sums[queries.start * stride..queries.end * stride];
        let running = &mut buffers.running[queries];
        for i in 0..count {
            let scores = &mut scores[i * PAGE..(i + 1) * PAGE];
            let sums = &mut sums[i * stride..(i + 1) * stride];
            update(s, (scores, seen[i]), &self.call.scores, (&mut running[i], sums));
        }
        let mut weights = &*scores;
        let scales = block.values.scale_count;
        if scales > 0 {
            buffers.weights.resize(MOST * scales * PAGE, 0.0);
            for (scores, out) in scores.chunks(PAGE).zip(buffers.weights.chunks_mut(scales * PAGE)) {
                scaled::weights(s, scores, &block.values, out);
            }
            weights = &buffers.weights[..count * scales * PAGE];
        }
        self.values(&block.values, (weights, &seen[..count]), common, sums);
    }

    /// Adds weighted values: the positions that all queries see together, the rest for each query.
    #[inline(always)]
    fn values(
        &self,
        stored: &Stored,
        (weights, seen): (&[f32], &[(usize, usize)]),
        common: (usize, usize),
        sums: &mut [f32],
    ) {
        let stride = self.call.stride();
        let mut inputs = [&[][..]; MOST];
        let each = weights.len() / seen.len();
        let mut i = 0;
        while i < seen.len() {
            inputs[i] = &weights[i * each..(i + 1) * each];
            i += 1;
        }
        let block = (stored.scale_count > 0).then_some(stored.block);
        let values = |inner| Product { b: stored.elements, inner, block };
        let shared = common.0 < common.1;
        for (i, &(low, high)) in seen.iter().enumerate() {
            let inner = (low, if shared { common.0 } else { high });
            product(self.s, &inputs[i..=i], &values(inner), &mut sums[i * stride..(i + 1) * stride]);
        }
        if shared {
            product(self.s, &inputs[..seen.len()], &values(common), sums);
            for (i, &(_, high)) in seen.iter().enumerate() {
                let rest = values((common.1, high));
                product(self.s, &inputs[i..=i], &rest, &mut sums[i * stride..(i + 1) * stride]);
            }
        }
    }

    /// Writes the quotients, in the basis of values that are not rotated.
    #[inline(always)]
    fn finish(&self, buffers: &mut Buffers) {
        let out = self.cx.view(self.call.out.place);
        let (head_dim, stride) = (self.call.shape.head_dim, self.call.stride());
        // The last block that a row sees is recent, where there are such.
        let last = self.call.recent.as_ref().unwrap_or(&self.call.cache);
        for (query, running) in buffers.running.iter().enumerate() {
            let sums = &mut buffers.sums[query * stride..][..head_dim];
            if let Some(basis) = &last.rotations.values {
                basis.leave(sums, &mut buffers.spare);
            }
            let head = self.unit.heads.start + query % self.unit.heads.len();
            let out = out.columns_mut(self.operand_row_of(query), head * head_dim..(head + 1) * head_dim);
            let inverse = 1.0 / running.total;
            for (o, &x) in out.iter_mut().zip(&*sums) {
                *o = x * inverse;
            }
        }
    }
}
