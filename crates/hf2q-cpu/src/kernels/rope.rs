//! Rotary position embedding, alone and behind a head norm.

use std::f64::consts::TAU;
use std::ops::Range;

use hf2q_plan::{Pairing, RopeParams, Yarn};

use super::norm::{NormParams, normalize};
use crate::call::{Call, Context, Operand, Scratch, VectorCall, Work};
use crate::memory::Place;
use crate::simd::Simd;
use crate::step::StepData;

/// Which columns of a head turn, and where the step's cosines and sines are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) head_dim: usize,
    pub(crate) pairing: Pairing,
    /// For each row of the step the cosine of every pair, then the sine of every pair.
    pub(crate) table: Place,
}

/// Fills the table of a step's cosines and sines. A unit is a row.
pub(crate) struct Angles {
    /// Angle per position of each pair.
    pub(crate) frequencies: Vec<f64>,
    pub(crate) magnitude: f64,
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

impl Angles {
    /// `factors` are the `dims/2` divisors of the angles, if there are any.
    pub(crate) fn new(p: &RopeParams, factors: Option<&[f32]>, table: Place) -> Self {
        let frequencies = (0..p.dims / 2).map(|i| frequency(p, factors, i)).collect();
        Self { frequencies, magnitude: f64::from(p.magnitude), table }
    }
}

fn frequency(p: &RopeParams, factors: Option<&[f32]>, i: usize) -> f64 {
    let (base, dims) = (f64::from(p.base), p.dims as f64);
    let factor = factors.map_or(1.0, |f| f64::from(f[i]));
    let plain = base.powf(-2.0 * i as f64 / dims) / factor;
    let scaled = f64::from(p.freq_scale) * plain;
    let keep = p.yarn.map_or(0.0, |yarn| kept(&yarn, i, (dims, base)));
    scaled * (1.0 - keep) + plain * keep
}

/// The share of pair `i` that YaRN does not interpolate: 1 where the pair turns often within the original context, 0
/// where it turns seldom.
fn kept(yarn: &Yarn, i: usize, (dims, base): (f64, f64)) -> f64 {
    let context = f64::from(yarn.original_context);
    let pair = |turns: f32| dims * (context / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln());
    let low = pair(yarn.beta_fast).floor().max(0.0);
    let high = pair(yarn.beta_slow).ceil().min(dims - 1.0);
    let ramp = (i as f64 - low) / (high - low).max(0.001);
    (1.0 - ramp.clamp(0.0, 1.0)) * f64::from(yarn.ext_factor)
}

impl Call for Angles {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.step.len(), self.frequencies.len(), 30.0)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let table = cx.view(self.table);
        for row in units {
            let position = cx.step.position(row) as f64;
            let (cos, sin) = table.row_mut(row).split_at_mut(self.frequencies.len());
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
                let (s, c) = (position * frequency).sin_cos();
                *cos = (c * self.magnitude) as f32;
                *sin = (s * self.magnitude) as f32;
            }
        }
    }
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
                turn(self.turn.pairing, head, angles);
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
                turn(self.turn.pairing, head, angles);
            }
        }
    }
}

/// Turns a head in place.
#[inline(always)]
fn turn(pairing: Pairing, head: &mut [f32], table: &[f32]) {
    let (cos, sin) = table.split_at(table.len() / 2);
    match pairing {
        Pairing::Halves => {
            let (first, second) = head[..table.len()].split_at_mut(cos.len());
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
