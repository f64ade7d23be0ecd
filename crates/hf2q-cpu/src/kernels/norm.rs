//! Root-mean-square norms, alone and followed by a residual add.

use std::ops::Range;

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd};
use crate::step::StepData;

/// What a norm divides and multiplies by.
pub(crate) struct NormParams {
    /// One for each column; `None`: all ones.
    pub(crate) weight: Option<Vec<f32>>,
    pub(crate) eps: f32,
}

/// See [`hf2q_plan::RmsNorm`]. A unit is a row.
pub(crate) struct RmsNorm {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
    pub(crate) group: usize,
    pub(crate) params: NormParams,
}

/// See [`hf2q_plan::NormAdd`]. A unit is a row.
pub(crate) struct NormAdd {
    pub(crate) x: Operand,
    pub(crate) residual: Operand,
    pub(crate) out: Operand,
    pub(crate) params: NormParams,
}

/// `1 / sqrt(mean(x²) + eps)`: sixteen partial sums along the row, added in a fixed tree.
#[inline(always)]
fn inverse_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let (vectors, tail) = x.as_chunks::<LANES>();
    let mut squares = s.splat(0.0);
    for v in vectors {
        let v = s.load(v);
        squares = s.fma(v, v, squares);
    }
    if !tail.is_empty() {
        let v = s.load_part(tail);
        squares = s.fma(v, v, squares);
    }
    1.0 / (s.sum(squares) / x.len() as f32 + eps).sqrt()
}

/// `out = x · inverse_rms · weight`.
#[inline(always)]
pub(crate) fn normalize<S: Simd>(s: S, x: &[f32], params: &NormParams, out: &mut [f32]) {
    let factor = inverse_rms(s, x, params.eps);
    match &params.weight {
        Some(weight) => {
            for ((o, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                *o = x * factor * w;
            }
        }
        None => {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = x * factor;
            }
        }
    }
}

impl VectorCall for RmsNorm {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.15)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out) = (cx.view(self.x.place), cx.view(self.out.place));
        for row in units {
            let groups = x.row(row).chunks_exact(self.group);
            for (x, out) in groups.zip(out.row_mut(row).chunks_exact_mut(self.group)) {
                normalize(s, x, &self.params, out);
            }
        }
    }
}

impl VectorCall for NormAdd {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.2)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, residual, out) =
            (cx.view(self.x.place), cx.view(self.residual.place), cx.view(self.out.place));
        for row in units {
            let out = out.row_mut(row);
            normalize(s, x.row(row), &self.params, out);
            for (o, &r) in out.iter_mut().zip(residual.row(row)) {
                *o += r;
            }
        }
    }
}
