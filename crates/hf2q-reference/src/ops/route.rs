use hf2q_plan::{Renormalize, Route};

use super::{State, round};

pub(super) fn run(o: &Route, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.logits) {
        let logits = s.memory.row(o.logits, r);
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f64> = logits.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).collect();
        let chosen = largest_first(logits, o.experts.width);
        let total: f64 = match o.renormalize {
            Renormalize::Chosen => chosen.iter().map(|&e| exps[e]).sum(),
            Renormalize::Keep => exps.iter().sum(),
        };
        let scale = o.expert_scale.map(|id| s.memory.weight(id));
        let weight = |&e: &usize| round(exps[e] / total * scale.map_or(1.0, |s| f64::from(s[e])));
        let weights: Vec<f32> = chosen.iter().map(weight).collect();
        let experts: Vec<i32> =
            chosen.iter().map(|&e| i32::try_from(e).expect("a router has fewer than 2^31 experts")).collect();
        s.memory.set_row(o.weights, r, &weights);
        s.memory.set_indices(o.experts, r, &experts);
    }
}

/// Softmax is monotone, so its largest are those of the logits. The sort is stable: ties keep the lower index first.
fn largest_first(logits: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // `+ 0.0` makes the two zeros equal, as they are for softmax.
    order.sort_by(|&a, &b| (logits[b] + 0.0).total_cmp(&(logits[a] + 0.0)));
    order.truncate(count);
    order
}
