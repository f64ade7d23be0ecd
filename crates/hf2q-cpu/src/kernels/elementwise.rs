//! Operations on single values: add, scale, soft cap.

use std::ops::Range;

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::memory::Rows;
use crate::simd::{LANES, Simd, tanh};
use crate::step::StepData;

/// Columns of a unit: logit rows are long, and one row must keep several threads busy.
const PIECE: usize = 8192;

/// See [`hf2q_plan::Add`].
pub(crate) struct Add {
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) out: Operand,
}

/// See [`hf2q_plan::Scale`]; the factor includes the model's value.
pub(crate) struct Scale {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
    pub(crate) factor: f32,
}

/// See [`hf2q_plan::SoftCap`].
pub(crate) struct SoftCap {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
    pub(crate) cap: f32,
}

fn work(step: &StepData, x: Operand, per_value: f32) -> Work {
    let pieces = x.place.width.div_ceil(PIECE).max(1);
    let width = x.place.width / pieces;
    Work::new(step.count(x.rows) * pieces, 20.0 + width as f32 * per_value)
}

/// Row and columns of a unit.
#[inline(always)]
fn piece(x: Rows<'_>, unit: usize) -> (usize, Range<usize>) {
    let pieces = x.width().div_ceil(PIECE).max(1);
    let start = unit % pieces * PIECE;
    (unit / pieces, start..(start + PIECE).min(x.width()))
}

impl VectorCall for Add {
    fn work(&self, step: &StepData) -> Work {
        work(step, self.a, 0.12)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, _s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (a, b, out) = (cx.view(self.a.place), cx.view(self.b.place), cx.view(self.out.place));
        for unit in units {
            let (row, columns) = piece(a, unit);
            let (a, b) = (a.columns(row, columns.clone()), b.columns(row, columns.clone()));
            for ((o, &a), &b) in out.columns_mut(row, columns).iter_mut().zip(a).zip(b) {
                *o = a + b;
            }
        }
    }
}

impl VectorCall for Scale {
    fn work(&self, step: &StepData) -> Work {
        work(step, self.x, 0.1)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, _s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out) = (cx.view(self.x.place), cx.view(self.out.place));
        for unit in units {
            let (row, columns) = piece(x, unit);
            let x = x.columns(row, columns.clone());
            for (o, &x) in out.columns_mut(row, columns).iter_mut().zip(x) {
                *o = x * self.factor;
            }
        }
    }
}

impl VectorCall for SoftCap {
    fn work(&self, step: &StepData) -> Work {
        work(step, self.x, 1.0)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out) = (cx.view(self.x.place), cx.view(self.out.place));
        for unit in units {
            let (row, columns) = piece(x, unit);
            let (x, x_tail) = x.columns(row, columns.clone()).as_chunks::<LANES>();
            let (out, out_tail) = out.columns_mut(row, columns).as_chunks_mut::<LANES>();
            for (x, out) in x.iter().zip(out) {
                s.store(soft_cap(s, s.load(x), self.cap), out);
            }
            s.store_part(soft_cap(s, s.load_part(x_tail), self.cap), out_tail);
        }
    }
}

/// `cap · tanh(x / cap)`.
#[inline(always)]
pub(crate) fn soft_cap<S: Simd>(s: S, x: S::V, cap: f32) -> S::V {
    let cap = s.splat(cap);
    s.mul(cap, tanh(s, s.div(x, cap)))
}
