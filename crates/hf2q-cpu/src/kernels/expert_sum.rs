//! The chosen experts' results, weighted and added.

use std::ops::Range;

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::Simd;
use crate::step::StepData;

/// See [`hf2q_plan::ExpertSum`]. A unit is a row.
pub(crate) struct ExpertSum {
    pub(crate) x: Operand,
    pub(crate) weights: Operand,
    pub(crate) out: Operand,
}

impl VectorCall for ExpertSum {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.12)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, _s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, weights, out) = (cx.view(self.x.place), cx.view(self.weights.place), cx.view(self.out.place));
        let width = out.width();
        for row in units {
            let out = out.row_mut(row);
            out.fill(0.0);
            for (i, &weight) in weights.row(row).iter().enumerate() {
                let x = x.columns(row, i * width..(i + 1) * width);
                for (o, &x) in out.iter_mut().zip(x) {
                    *o += weight * x;
                }
            }
        }
    }
}
