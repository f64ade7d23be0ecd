//! Attention over cached keys and values.
//!
//! A row's keys are visited in ascending position in blocks of [`PAGE`]. Per block and query head: scores, each one
//! chain of multiply-adds along the head; the new maximum; the old sums rescaled; the block's exponentials added in a
//! fixed tree, its values in ascending position. Positions that a row does not see take no part. Blocks make up ranges
//! that begin at multiples of [`split::RANGE`]; each starts with nothing seen, and ranges are merged in ascending order. All of
//! that is the row's own, so it does not matter which rows and heads are computed together, nor which thread takes which
//! range.
//!
//! Packed codes are read as they lie in the cache. Where keys are stored rotated, so is the query, once; where values
//! are, their sum is rotated back, once. Where only values are stored, a block's keys are formed of them once for all
//! queries of the unit; where these are cut, of one block of components, and codes serve for the others.
//!
//! Where the last pages are kept a second time, the rows that see a block as recent come before those that see it as
//! coded, and each of both parts is computed with its own storage. A row's recent blocks are its last ones: before the
//! first of them its sum changes to the basis of the values there.

mod batch;
mod block;
mod element;
mod form;
mod lanes;
mod parts;
mod product;
mod scaled;
mod softmax;
mod split;
mod task;

use std::ops::Range;
use std::sync::Arc;

use hf2q_plan::{Cut, PAGE, Span};
use hf2q_quant::kv::{rotate, rotate_back};

pub(crate) use self::form::Former;
pub(crate) use self::parts::Parts;
use self::softmax::Sums;
pub(crate) use self::split::{Combine, Partials};
use self::task::Task;
use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd};
use crate::step::StepData;

/// See [`hf2q_plan::Attention`]. A unit is a chunk of rows, some query heads that share a KV head and all blocks that the
/// rows see, the chunks that see most coming first; or, in a step that is [split](split), one range of their blocks.
pub(crate) struct Attention {
    pub(crate) q: Operand,
    pub(crate) out: Operand,
    pub(crate) cache: Source,
    /// Where rows find the blocks of their last pages.
    pub(crate) recent: Option<Source>,
    pub(crate) shape: Shape,
    pub(crate) scores: ScoreParams,
    pub(crate) threads: usize,
    /// Where ranges leave their sums if several threads share a row.
    pub(crate) partials: Option<Partials>,
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
    queries: Queries,
    /// `[queries][block]`: what of them is multiplied by components that are formed.
    turned: Vec<f32>,
    /// A vector.
    spare: Vec<f32>,
    /// Of the range that is being computed.
    part: Sums,
    /// Of those before it.
    all: Sums,
    block: block::Buffers,
}

/// The queries of a unit, `[queries][head_dim]`.
#[derive(Default)]
struct Queries {
    /// As they were computed.
    plain: Vec<f32>,
    /// In the basis of keys that are stored rotated.
    rotated: Vec<f32>,
}

/// What one unit computes. Query `i` is head `heads.start + i % heads.len()` of row `rows.start + i / heads.len()`.
struct Unit {
    /// Rows of the step.
    rows: Range<usize>,
    /// The row of the queries, and of what is written, that belongs to the first of `rows`.
    at: usize,
    kv_head: usize,
    heads: Range<usize>,
    /// Blocks of positions.
    blocks: Range<usize>,
    /// The first row of partial sums, if sums are left there.
    entry: Option<usize>,
    /// Whether the unit that follows goes on where this one ends.
    go_on: bool,
}

/// Queries that are computed together.
const TILE: usize = 6;

/// The same where that is all of them and what is read of a key serves so many.
const MOST: usize = 8;

impl Attention {
    /// Positions that some of these rows see.
    fn positions(&self, step: &StepData, rows: &Range<usize>) -> usize {
        let visible = |row| step.visible(self.cache.span, row);
        if rows.is_empty() { 0 } else { visible(rows.end - 1).end - visible(rows.start).start }
    }

    /// Blocks that some of these rows see; there is a row.
    fn blocks(&self, step: &StepData, rows: &Range<usize>) -> Range<usize> {
        let first = step.visible(self.cache.span, rows.start).start / PAGE;
        first..step.position(rows.end - 1) / PAGE + 1
    }

    /// Values of a row of sums.
    fn stride(&self) -> usize {
        self.shape.head_dim.next_multiple_of(LANES)
    }
}

impl VectorCall for Arc<Attention> {
    fn work(&self, step: &StepData) -> Work {
        let units = self.units(step);
        let chunks = step.chunks(self.q.rows);
        let rows = chunks.iter().flat_map(|c| c.rows.clone());
        let seen: usize = rows.map(|r| step.visible(self.cache.span, r).len()).sum();
        let total = (seen * self.shape.heads) as f32 * (self.shape.head_dim as f32 * 0.04 + 2.0);
        // Keys are formed once for all rows of a unit.
        let formed: usize = chunks.iter().map(|c| self.positions(step, &c.rows)).sum();
        let total = total + (formed * self.shape.kv_heads) as f32 * self.cache.keys.nanoseconds();
        Work::new(units, total / units.max(1) as f32)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let end = units.end;
        for unit in units {
            let unit = self.unit(cx.step, unit, unit + 1 < end);
            Task { call: self, cx, unit, s }.run(&mut scratch.attention);
        }
    }
}
