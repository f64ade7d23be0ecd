//! Products with chosen experts in every format, experts that no row chooses, all experts chosen, and their sum.

use hf2q_gguf::TensorType;
use hf2q_plan::{ExpertInput, Renormalize, Weight};

use super::Case;
use super::mat_mul::{inputs, precision};
use crate::blocks;
use crate::builder::Values;
use crate::tolerance::Precision::Single;

#[derive(Clone, Copy, Debug)]
struct Shape {
    n_in: usize,
    n_out: usize,
    experts: usize,
    top_k: usize,
    input: ExpertInput,
    /// How the router's logits lie.
    logits: Values,
}

fn shapes(ty: TensorType) -> Vec<Shape> {
    let len = ty.block_len();
    let base = Shape {
        n_in: if len == 1 { 65 } else { 2 * len },
        n_out: 33,
        experts: 8,
        top_k: 2,
        input: ExpertInput::Shared,
        logits: Values::Normal(1.0),
    };
    let per_expert = ExpertInput::PerExpert;
    vec![
        base,
        Shape { n_in: len, n_out: 1, experts: 1, top_k: 1, ..base },
        Shape { n_out: 48, input: per_expert, logits: Values::LowHalf, ..base },
        Shape { experts: 5, top_k: 5, input: per_expert, n_out: 17, ..base },
        Shape { experts: 60, top_k: 3, n_out: 16, logits: Values::LowHalf, ..base },
    ]
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    for ty in blocks::types() {
        for &values in inputs(ty) {
            for s in shapes(ty) {
                let Shape { n_in, n_out, experts, top_k, input, logits, .. } = s;
                let name = format!(
                    "{ty} {n_in} to {n_out}, {top_k} of {experts} {input:?}, {values:?}, router {logits:?}"
                );
                cases.push(Case::new("expert_mat_mul", name, precision(ty, values), move |b| {
                    let w = b.weight("w", Weight { ty, cols: n_in, rows: n_out, experts });
                    let logits = b.input("logits", experts, logits);
                    let (chosen, _) = b.r.route("route", logits, top_k, (Renormalize::Chosen, None));
                    let width = if input == ExpertInput::Shared { n_in } else { top_k * n_in };
                    let x = b.input("x", width, values);
                    b.r.expert_mat_mul("out", x, chosen, (w, input))
                }));
            }
        }
    }
    for (width, top_k) in [(1, 1), (3, 8), (17, 2), (640, 4)] {
        cases.push(Case::new("expert_sum", format!("{top_k} of width {width}"), Single, move |b| {
            let x = b.input("x", top_k * width + 2, Values::Normal(1.0)).columns(1, top_k * width);
            let weights = b.input("weights", top_k + 1, Values::Normal(1.0)).columns(1, top_k);
            b.r.expert_sum("out", x, weights)
        }));
    }
}
