//! The experts of each row and their weights.

use std::ops::Range;

use hf2q_plan::Renormalize;

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd, exp};
use crate::step::StepData;

/// See [`hf2q_plan::Route`]. A unit is a row.
pub(crate) struct Route {
    pub(crate) logits: Operand,
    pub(crate) experts: Operand,
    pub(crate) weights: Operand,
    pub(crate) renormalize: Renormalize,
    /// One for each expert.
    pub(crate) expert_scale: Option<Vec<f32>>,
}

impl VectorCall for Route {
    fn work(&self, step: &StepData) -> Work {
        let selection = 1.0 * self.experts.place.width as f32;
        Work::rows(step.count(self.logits.rows), self.logits.place.width, 1.0 + selection)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let (logits, experts) = (cx.view(self.logits.place), cx.view(self.experts.place));
        let weights = cx.view(self.weights.place);
        for row in units {
            let (experts, weights) = (experts.indices_mut(row), weights.row_mut(row));
            let sum = exponentials(s, logits.row(row), &mut scratch.floats);
            choose(logits.row(row), experts);
            for (w, &e) in weights.iter_mut().zip(&*experts) {
                *w = scratch.floats[e as usize];
            }
            let total = match self.renormalize {
                Renormalize::Keep => sum,
                Renormalize::Chosen => weights.iter().sum(),
            };
            for (w, &e) in weights.iter_mut().zip(&*experts) {
                let scale = self.expert_scale.as_ref().map_or(1.0, |scale| scale[e as usize]);
                *w = *w / total * scale;
            }
        }
    }
}

/// `e^(x - max)` of every value into `out`; returns their sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, x: &[f32], out: &mut Vec<f32>) -> f32 {
    // What pads the last vector adds nothing to the sum.
    out.clear();
    out.extend_from_slice(x);
    out.resize(x.len().next_multiple_of(LANES), f32::NEG_INFINITY);
    let (vectors, _) = out.as_chunks_mut::<LANES>();
    let mut largest = s.splat(f32::NEG_INFINITY);
    for v in vectors.iter() {
        largest = s.max(largest, s.load(v));
    }
    let largest = s.splat(s.largest(largest));
    let mut sum = s.splat(0.0);
    for v in vectors {
        let e = exp(s, s.sub(s.load(v), largest));
        sum = s.add(sum, e);
        s.store(e, v);
    }
    s.sum(sum)
}

/// Indices of the largest values, descending; ties go to the lower index, NaN comes last.
fn choose(x: &[f32], chosen: &mut [i32]) {
    for k in 0..chosen.len() {
        let mut best = None;
        for (i, &v) in x.iter().enumerate() {
            let better = best.is_none_or(|(_, b): (usize, f32)| v > b || (b.is_nan() && !v.is_nan()));
            if better && !chosen[..k].iter().any(|&c| c as usize == i) {
                best = Some((i, v));
            }
        }
        chosen[k] = best.and_then(|(i, _)| i32::try_from(i).ok()).expect("fewer are chosen than there are");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_index_and_nan_comes_last() {
        let mut chosen = [0; 4];
        choose(&[1.0, f32::NAN, 2.0, 2.0, f32::NEG_INFINITY], &mut chosen);
        assert_eq!(chosen, [2, 3, 0, 4]);
        let mut chosen = [0; 2];
        choose(&[f32::NAN, f32::NAN], &mut chosen);
        assert_eq!(chosen, [0, 1]);
    }
}
