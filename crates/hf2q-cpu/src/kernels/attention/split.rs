//! How the attention of a step is cut into units, and how the sums of ranges become rows.
//!
//! Where chunks and KV heads alone do not keep all threads busy, a unit is one range of the blocks that a chunk sees. It leaves
//! its sums, and [`Combine`] merges them: by the same arithmetic and in the same order as a thread does that computes all
//! ranges of a row.

use std::ops::Range;
use std::sync::Arc;

use hf2q_plan::{BackendError, PAGE};

use super::softmax::Running;
use super::{Attention, Basis, Unit};
use crate::call::{Context, Scratch, VectorCall, Work};
use crate::compile::Compiler;
use crate::memory::Place;
use crate::simd::{LANES, Simd};
use crate::step::{Chunk, StepData};

/// Blocks of a range.
pub(super) const RANGE: usize = 8;

/// Rows of a step that may be split, at least, if the context has the length of one row's.
const ROWS: usize = 16;

/// From so many units on for each thread, it does not matter whether their number is a multiple of that of the threads.
const PLENTY: usize = 4;

/// Space for sums of ranges: rows of `[heads][stride + LANES]`, where the last vector holds the maximum and the total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partials {
    place: Place,
    rows: usize,
}

impl Partials {
    /// Space for the attention of `heads` heads to a cache of `pages` pages; none where heads occupy all threads.
    pub(crate) fn new(
        c: &mut Compiler<'_>,
        (heads, kv_heads, head_dim): (usize, usize, usize),
        pages: usize,
    ) -> Result<Option<Self>, BackendError> {
        if kv_heads.is_multiple_of(c.threads) {
            return Ok(None);
        }
        let width = heads * (head_dim.next_multiple_of(LANES) + LANES);
        let rows = pages.div_ceil(RANGE) + ROWS;
        let at = c.sums(rows * width)?;
        Ok(Some(Self { place: Place { at, stride: width, width }, rows }))
    }
}

impl Attention {
    /// Where partial sums are left in this step, if it is split.
    fn split(&self, step: &StepData) -> Option<Partials> {
        let chunks = step.chunks(self.q.rows);
        let units = chunks.len() * self.shape.kv_heads;
        let partials = self.partials?;
        if units.is_multiple_of(self.threads) || units >= PLENTY * self.threads {
            return None;
        }
        let ranges = || chunks.iter().map(|c| (c.rows.len(), self.ranges(step, &c.rows).len()));
        let rows: usize = ranges().map(|(rows, ranges)| rows * ranges).sum();
        let wanted = rows <= partials.rows && ranges().any(|(_, ranges)| ranges > 1);
        wanted.then_some(partials)
    }

    /// Ranges of blocks that some of these rows see.
    fn ranges(&self, step: &StepData, rows: &Range<usize>) -> Range<usize> {
        let blocks = self.blocks(step, rows);
        blocks.start / RANGE..(blocks.end - 1) / RANGE + 1
    }

    /// Parts into which the query heads of a KV head are cut where there are few chunks.
    fn parts(&self, step: &StepData) -> usize {
        let sharing = self.shape.heads / self.shape.kv_heads;
        let units = (step.chunks(self.q.rows).len() * self.shape.kv_heads).max(1);
        let wanted = self.threads.div_ceil(units).min(sharing);
        // Parts of equal size.
        (1..=wanted).rev().find(|&n| sharing.is_multiple_of(n)).unwrap_or(1)
    }

    /// Number of units.
    pub(super) fn units(&self, step: &StepData) -> usize {
        let chunks = step.chunks(self.q.rows);
        let per_head: usize = match self.split(step) {
            Some(_) => chunks.iter().map(|c| self.ranges(step, &c.rows).len()).sum(),
            None => chunks.len() * self.parts(step),
        };
        per_head * self.shape.kv_heads
    }

    /// Unit `unit`; `go_on`: the next one follows.
    pub(super) fn unit(&self, step: &StepData, unit: usize, go_on: bool) -> Unit {
        match self.split(step) {
            Some(_) => self.range_unit(step, unit, go_on),
            None => self.chunk_unit(step, unit),
        }
    }

    fn chunk_unit(&self, step: &StepData, unit: usize) -> Unit {
        let parts = self.parts(step);
        let per_chunk = parts * self.shape.kv_heads;
        let chunks = step.chunks(self.q.rows);
        let Chunk { rows, at } = chunks[chunks.len() - 1 - unit / per_chunk].clone();
        let kv_head = unit % per_chunk / parts;
        let sharing = self.shape.heads / self.shape.kv_heads;
        let each = sharing / parts;
        let first = kv_head * sharing + unit % parts * each;
        let blocks = self.blocks(step, &rows);
        Unit { rows, at, kv_head, heads: first..first + each, blocks, entry: None, go_on: false }
    }

    /// Ranges of one chunk and head follow one another.
    fn range_unit(&self, step: &StepData, mut unit: usize, go_on: bool) -> Unit {
        let mut entry = 0;
        for Chunk { rows, at } in step.chunks(self.q.rows).iter().cloned() {
            let ranges = self.ranges(step, &rows);
            if unit < ranges.len() * self.shape.kv_heads {
                let (kv_head, i) = (unit / ranges.len(), unit % ranges.len());
                let sharing = self.shape.heads / self.shape.kv_heads;
                let all = self.blocks(step, &rows);
                let first = (ranges.start + i) * RANGE;
                let blocks = first.max(all.start)..(first + RANGE).min(all.end);
                let heads = kv_head * sharing..(kv_head + 1) * sharing;
                let entry = Some(entry + i * rows.len());
                return Unit {
                    rows,
                    at,
                    kv_head,
                    heads,
                    blocks,
                    entry,
                    go_on: go_on && i + 1 < ranges.len(),
                };
            }
            unit -= ranges.len() * self.shape.kv_heads;
            entry += ranges.len() * rows.len();
        }
        unreachable!("a unit beyond those of the step")
    }

    /// What values change to before a range is merged, for a row whose blocks turn recent in that range and that has seen
    /// other ranges. The `bool`: they leave the basis.
    pub(super) fn turns_recent(&self, step: &StepData, row: usize, range: usize) -> Option<(&Basis, bool)> {
        let recent = self.recent.as_ref()?;
        let first = step.visible(recent.span, row).start / PAGE / RANGE;
        if first != range {
            return None;
        }
        match (&self.cache.rotations.values, &recent.rotations.values) {
            (Some(basis), None) => Some((basis, true)),
            (None, Some(basis)) => Some((basis, false)),
            _ => None,
        }
    }

    /// Leaves the sums of a query.
    #[inline(always)]
    pub(super) fn leave(
        &self,
        cx: &Context<'_>,
        (entry, head): (usize, usize),
        (sums, running): (&[f32], &Running),
    ) {
        let partials = self.partials.expect("a unit that leaves sums has a place for them");
        let width = self.stride() + LANES;
        let to = cx.view(partials.place).columns_mut(entry, head * width..(head + 1) * width);
        let (values, tail) = to.split_at_mut(self.stride());
        values.copy_from_slice(sums);
        (tail[0], tail[1]) = (running.largest, running.total);
    }
}

/// Merges the ranges of rows of a step that is split. A unit is a query head of a row.
pub(crate) struct Combine(pub(crate) Arc<Attention>);

impl VectorCall for Combine {
    fn work(&self, step: &StepData) -> Work {
        let call = &*self.0;
        if call.split(step).is_none() {
            return Work::default();
        }
        let chunks = step.chunks(call.q.rows);
        let ranges: usize = chunks.iter().map(|c| c.rows.len() * call.ranges(step, &c.rows).len()).sum();
        let values = ranges * call.shape.heads * call.shape.head_dim;
        let units = step.count(call.q.rows) * call.shape.heads;
        Work::new(units, 50.0 + 0.1 * values as f32 / units.max(1) as f32)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let call = &*self.0;
        let Some(partials) = call.split(cx.step) else { return };
        let (stride, width) = (call.stride(), call.stride() + LANES);
        for unit in units {
            let (at, head) = (unit / call.shape.heads, unit % call.shape.heads);
            let Some(found) = call.partial_rows(cx.step, at) else { continue };
            let buffers = &mut scratch.attention;
            buffers.all.clear(1, stride);
            for (range, entry) in found.ranges.clone().zip((found.entry..).step_by(found.step)) {
                let from = cx.view(partials.place).columns(entry, head * width..(head + 1) * width);
                let (sums, tail) = from.split_at(stride);
                let part = Running { largest: tail[0], total: tail[1] };
                call.merge_range(
                    s,
                    (cx.step, found.row, range),
                    (part, sums),
                    (&mut buffers.all, 0, &mut buffers.spare),
                );
            }
            let all = &mut buffers.all;
            call.write(cx, (at, head), (&all.running[0], &mut all.values), &mut buffers.spare);
        }
    }
}

/// Where the partial sums of a row lie.
struct Found {
    /// The row of the step.
    row: usize,
    ranges: Range<usize>,
    /// The first range's row of partial sums.
    entry: usize,
    /// Rows from one range to the next.
    step: usize,
}

impl Attention {
    /// Partial sums of row `at` of the queries.
    fn partial_rows(&self, step: &StepData, at: usize) -> Option<Found> {
        let mut entry = 0;
        for chunk in step.chunks(self.q.rows) {
            let all = self.ranges(step, &chunk.rows);
            if (chunk.at..chunk.at + chunk.rows.len()).contains(&at) {
                let row = chunk.rows.start + at - chunk.at;
                let ranges = self.ranges(step, &(row..row + 1));
                let entry = entry + (ranges.start - all.start) * chunk.rows.len() + at - chunk.at;
                return Some(Found { row, ranges, entry, step: chunk.rows.len() });
            }
            entry += all.len() * chunk.rows.len();
        }
        None
    }
}
