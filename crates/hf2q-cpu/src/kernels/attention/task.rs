//! One unit of attention.

use std::ops::Range;

use hf2q_plan::PAGE;
use hf2q_quant::kv::rotate;

use super::block::{Block, Wanted};
use super::softmax::{Running, Sums, merge};
use super::split::RANGE;
use super::{Attention, Buffers, Keys, MOST, Queries, Source, TILE, Unit};
use crate::call::Context;
use crate::simd::Simd;
use crate::step::StepData;

/// A unit being computed.
pub(super) struct Task<'a, S> {
    pub(super) call: &'a Attention,
    pub(super) cx: &'a Context<'a>,
    pub(super) unit: Unit,
    pub(super) s: S,
}

impl<S: Simd> Task<'_, S> {
    /// All ranges of the unit; the rows they make are written, or left for [`super::Combine`].
    #[inline(always)]
    pub(super) fn run(&self, buffers: &mut Buffers) {
        let (queries, stride) = (self.queries(), self.call.stride());
        self.prepare(&mut buffers.queries);
        let Range { start, end } = self.unit.blocks;
        let first = start / RANGE;
        let last = (end - 1) / RANGE;
        let mut range = first;
        while range <= last {
            buffers.part.clear(queries, stride);
            self.range(start.max(range * RANGE)..end.min((range + 1) * RANGE), buffers);
            if range == first {
                std::mem::swap(&mut buffers.part, &mut buffers.all);
            } else {
                self.merge(range, buffers);
            }
            range += 1;
        }
        self.finish(buffers);
    }

    /// Number of queries.
    #[inline(always)]
    fn queries(&self) -> usize {
        self.unit.rows.len() * self.unit.heads.len()
    }

    /// Blocks of one range.
    #[inline(always)]
    fn range(&self, blocks: Range<usize>, buffers: &mut Buffers) {
        let mut i = blocks.start;
        while i < blocks.end {
            let mut rows = self.rows_seeing(i);
            if let Some(recent) = &self.call.recent {
                let middle = self.rows_since(recent, i, rows.clone());
                self.change_basis(recent, (i, blocks.start), (rows.start..middle, buffers));
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
        let go_on = i + 1 < self.unit.blocks.end || self.unit.go_on;
        let wanted = Wanted { index: i, queries, go_on };
        let block = Block::find(self.s, self.cx, (self.call, source, &self.unit), wanted, &mut held);
        let (mut query, end) = ((rows.start - start) * sharing, (rows.end - start) * sharing);
        let at_once = if queries <= MOST { MOST } else { TILE };
        while query < end {
            let count = (end - query).min(at_once);
            self.batch((source, &block), query..query + count, buffers);
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

    /// Brings the sums of those of `rows` whose first recent block is `i`, and that have seen others since block `start`, into
    /// the basis of its values.
    #[inline(always)]
    fn change_basis(
        &self,
        recent: &Source,
        (i, start): (usize, usize),
        (rows, buffers): (Range<usize>, &mut Buffers),
    ) {
        let (from, to) = (self.call.cache.rotations.values, recent.rotations.values);
        let Some(basis) = from.xor(to) else { return };
        let (stride, sharing) = (self.call.stride(), self.unit.heads.len());
        for row in rows {
            let seen = self.first_block(row).max(start);
            if self.cx.step.visible(recent.span, row).start != i * PAGE || seen >= i {
                continue;
            }
            let first = (row - self.unit.rows.start) * sharing;
            for sums in
                buffers.part.values[first * stride..(first + sharing) * stride].chunks_exact_mut(stride)
            {
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
    pub(super) fn seen(&self, row: usize, i: usize) -> Range<usize> {
        let visible = self.cx.step.visible(self.call.cache.span, row);
        let first = i * PAGE;
        let low = visible.start.max(first) - first;
        low..visible.end.clamp(first, first + PAGE) - first
    }

    /// The row of the step.
    #[inline(always)]
    pub(super) fn row_of(&self, query: usize) -> usize {
        self.unit.rows.start + query / self.unit.heads.len()
    }

    /// The row of the queries and of what is written, and the head.
    #[inline(always)]
    fn place_of(&self, query: usize) -> (usize, usize) {
        let sharing = self.unit.heads.len();
        (self.unit.at + query / sharing, self.unit.heads.start + query % sharing)
    }

    /// Queries side by side, and in the basis of keys that are stored rotated.
    #[inline(always)]
    fn prepare(&self, Queries { plain, rotated }: &mut Queries) {
        plain.clear();
        rotated.clear();
        let head_dim = self.call.shape.head_dim;
        let q = self.cx.view(self.call.q.place);
        for query in 0..self.queries() {
            let (row, head) = self.place_of(query);
            plain.extend_from_slice(q.columns(row, head * head_dim..(head + 1) * head_dim));
        }
        let recent = self.call.recent.as_ref();
        for source in [Some(&self.call.cache), recent].into_iter().flatten() {
            if let Keys::Parts(parts) = &source.keys {
                plain.chunks_exact(head_dim).for_each(|query| parts.prepare(query, rotated));
                return;
            }
        }
        let recent = recent.and_then(|recent| recent.rotations.keys);
        // Heads have one size, so what is rotated is rotated in the same blocks.
        if let Some(block) = self.call.cache.rotations.keys.or(recent) {
            rotated.extend_from_slice(plain);
            rotated.chunks_exact_mut(block).for_each(rotate);
        }
    }

    /// Merges a range with those before it.
    #[inline(always)]
    fn merge(&self, range: usize, buffers: &mut Buffers) {
        let stride = self.call.stride();
        for query in 0..self.queries() {
            let part = buffers.part.running[query];
            let sums = &buffers.part.values[query * stride..(query + 1) * stride];
            let of = (self.cx.step, self.row_of(query), range);
            self.call.merge_range(self.s, of, (part, sums), (&mut buffers.all, query, &mut buffers.spare));
        }
    }

    /// Writes the rows, or leaves the sums.
    #[inline(always)]
    fn finish(&self, buffers: &mut Buffers) {
        let stride = self.call.stride();
        let Buffers { all, spare, .. } = buffers;
        for (query, running) in all.running.iter().enumerate() {
            let sums = &mut all.values[query * stride..(query + 1) * stride];
            let (at, head) = self.place_of(query);
            match self.unit.entry {
                Some(entry) => self.call.leave(self.cx, (entry + at - self.unit.at, head), (sums, running)),
                None => self.call.write(self.cx, (at, head), (running, sums), spare),
            }
        }
    }
}

impl Attention {
    /// Merges what a row's query saw of a range into what it saw of those before.
    #[inline(always)]
    pub(super) fn merge_range<S: Simd>(
        &self,
        s: S,
        (step, row, range): (&StepData, usize, usize),
        (part, sums): (Running, &[f32]),
        (all, query, spare): (&mut Sums, usize, &mut Vec<f32>),
    ) {
        let stride = self.stride();
        let (running, all) = (&mut all.running[query], &mut all.values[query * stride..(query + 1) * stride]);
        if let Some((basis, leaves)) = self.turns_recent(step, row, range).filter(|_| !running.is_none()) {
            let all = &mut all[..self.shape.head_dim];
            if leaves { basis.leave(all, spare) } else { basis.enter(all, spare) }
        }
        merge(s, (running, all), (part, sums));
    }

    /// Writes the quotients, in the basis of values that are not rotated, to a row's head.
    #[inline(always)]
    pub(super) fn write(
        &self,
        cx: &Context<'_>,
        (at, head): (usize, usize),
        (running, sums): (&Running, &mut [f32]),
        spare: &mut Vec<f32>,
    ) {
        let head_dim = self.shape.head_dim;
        let sums = &mut sums[..head_dim];
        // The last block that a row sees is recent, where there are such.
        let last = self.recent.as_ref().unwrap_or(&self.cache);
        if let Some(basis) = &last.rotations.values {
            basis.leave(sums, spare);
        }
        let out = cx.view(self.out.place).columns_mut(at, head * head_dim..(head + 1) * head_dim);
        let inverse = 1.0 / running.total;
        for (o, &x) in out.iter_mut().zip(&*sums) {
            *o = x * inverse;
        }
    }
}
