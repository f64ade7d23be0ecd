//! Rotary position embedding, alone and behind a head norm.

use std::ops::Range;

use hf2q_plan::Pairing;

use super::norm::{NormParams, normalize};
use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::memory::Place;
use crate::simd::Simd;
use crate::step::StepData;

/// Which columns of a head turn, and where the step's cosines and sines are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) head_dim: usize,
    pub(crate) pairing: Pairing,
    /// Columns between the two of a pair, if pairs are halves.
    pub(crate) half: usize,
    /// For each row of the step the cosine of every pair, then the sine of every pair.
    pub(crate) table: Place,
}

/// See [`hf2q_plan::Rope`]. A unit is a row.
pub(crate) struct Rope {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
    pub(crate) turn: Turn,
}

/// See [`hf2q_plan::NormRope`]. A unit is a row.
pub(crate) struct NormRope {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
    pub(crate) params: NormParams,
    pub(crate) turn: Turn,
}

impl VectorCall for Rope {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.2)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, _s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out, table) = (cx.view(self.x.place), cx.view(self.out.place), cx.view(self.turn.table));
        for row in units {
            let out = out.row_mut(row);
            out.copy_from_slice(x.row(row));
            let angles = table.row(cx.step.row(self.x.rows, row));
            for head in out.chunks_exact_mut(self.turn.head_dim) {
                self.turn.apply(head, angles);
            }
        }
    }
}

impl VectorCall for NormRope {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.3)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out, table) = (cx.view(self.x.place), cx.view(self.out.place), cx.view(self.turn.table));
        let head_dim = self.turn.head_dim;
        for row in units {
            let heads = x.row(row).chunks_exact(head_dim);
            let angles = table.row(cx.step.row(self.x.rows, row));
            for (x, head) in heads.zip(out.row_mut(row).chunks_exact_mut(head_dim)) {
                normalize(s, x, &self.params, head);
                self.turn.apply(head, angles);
            }
        }
    }
}

impl Turn {
    /// Turns a head in place.
    #[inline(always)]
    fn apply(&self, head: &mut [f32], angles: &[f32]) {
        let (cos, sin) = angles.split_at(angles.len() / 2);
        match self.pairing {
            Pairing::Halves => {
                let (first, second) = head.split_at_mut(self.half);
                for (((a, b), &c), &s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
                }
            }
            Pairing::Adjacent => {
                for ((pair, &c), &s) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                    let [a, b] = *pair;
                    *pair = [a * c - b * s, a * s + b * c];
                }
            }
        }
    }
}
