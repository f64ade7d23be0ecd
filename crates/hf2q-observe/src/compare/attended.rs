//! Outputs of attention, and how much those of two sides point the same way.

use hf2q_plan::{NamedOp, Observer, Op, Plan, Tensors};

use crate::collect::rows;

/// One attention operation of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// For example `L07.attn.attend`.
    pub(super) op: String,
    /// `global` or `sliding`.
    pub(super) group: String,
    /// Values of a row.
    pub(super) width: usize,
}

/// The attention operations of a plan, in the order in which they run.
pub(super) fn layers(plan: &Plan) -> Vec<Layer> {
    let layer = |op: &NamedOp| match &op.op {
        Op::Attention(a) => {
            let recording = &plan.recording;
            let group = recording.groups[recording.cache(a.cache).group.index()].name.clone();
            Some(Layer { op: op.name.clone(), group, width: a.out.width })
        }
        _ => None,
    };
    plan.recording.ops.iter().filter_map(layer).collect()
}

/// Keeps what the attention operations of one step put out.
#[derive(Debug, Default)]
pub(super) struct Attended {
    /// `[rows, width]` of each, in the order in which they ran.
    outputs: Vec<Vec<f32>>,
    /// An operation that the backend did not show.
    pub(super) hidden: Option<String>,
}

impl Attended {
    /// Makes place for another step.
    pub(super) fn clear(&mut self) {
        self.outputs.clear();
    }
}

/// Looks at one program's steps. Widths of activations are the plan's.
pub(super) struct Watch<'a> {
    pub(super) plan: &'a Plan,
    pub(super) seen: &'a mut Attended,
}

impl Observer for Watch<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        matches!(op.op, Op::Attention(_))
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let Op::Attention(a) = &op.op else { return };
        let width = self.plan.recording.activation(a.out.tensor).map(|(_, width)| width);
        match (tensors.values(a.out.tensor), width) {
            (Some(values), Some(width)) => {
                self.seen.outputs.push(rows(&values, width, a.out).flatten().copied().collect());
            }
            _ => {
                self.seen.hidden.get_or_insert_with(|| op.name.clone());
            }
        }
    }
}

/// Cosines of the rows of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cosines {
    pub(super) sum: f64,
    pub(super) least: f64,
    pub(super) rows: usize,
}

impl Default for Cosines {
    fn default() -> Self {
        Self { sum: 0.0, least: 1.0, rows: 0 }
    }
}

/// Adds the cosines of a step's rows to those of each layer.
pub(super) fn add(cosines: &mut [Cosines], layers: &[Layer], (a, b): (&Attended, &Attended)) {
    for (((cosines, layer), a), b) in cosines.iter_mut().zip(layers).zip(&a.outputs).zip(&b.outputs) {
        let width = layer.width.max(1);
        for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
            let cosine = cosine(a, b);
            cosines.sum += cosine;
            cosines.least = cosines.least.min(cosine);
            cosines.rows += 1;
        }
    }
}

/// 1 for equal vectors, exactly; 0 if one of them is zero or not finite.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a), f64::from(b));
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    if aa == 0.0 && bb == 0.0 {
        return 1.0;
    }
    // The root of the product, not the product of the roots: that of a square is exact.
    let cosine = ab / (aa * bb).sqrt();
    if cosine.is_finite() { cosine.clamp(-1.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_of_plain_vectors() {
        for (a, b, expected) in [
            ([1.0, 0.0], [0.0, 2.0], 0.0),
            ([1.0, 1.0], [-3.0, -3.0], -1.0),
            ([0.0, 0.0], [0.0, 0.0], 1.0),
            ([0.0, 0.0], [1.0, 0.0], 0.0),
            ([f32::NAN, 0.0], [1.0, 0.0], 0.0),
            ([3.0, 4.0], [4.0, 3.0], 0.96),
        ] {
            assert!((cosine(&a, &b) - expected).abs() < 1e-12, "{a:?} {b:?}: {}", cosine(&a, &b));
        }
        let odd: Vec<f32> = (0..97).map(|i| (i as f32 * 0.37).sin() / 3.0).collect();
        assert_eq!(cosine(&odd, &odd), 1.0);
    }
}
