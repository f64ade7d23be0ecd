//! Feed-forward networks as all architectures share them. `x` is the normalized input `[R, hidden]`.

use hf2q_arch::Experts;
use hf2q_plan::{ExpertInput, Renormalize, TensorId, View};

use crate::builder::Builder;

/// Gated linear unit: `down · (act(gate · x) ⊙ (up · x))`.
pub(crate) fn gated(b: &mut Builder<'_>, x: View) -> View {
    let gate = b.linear("gate_proj", x, "ffn_gate");
    let up = b.linear("up_proj", x, "ffn_up");
    let h = b.r.glu("glu", gate, up, b.activation());
    b.linear("down_proj", h, "ffn_down")
}

/// Chosen experts of each row with their weights.
#[derive(Clone, Copy)]
pub(crate) struct Routing {
    experts: View,
    weights: View,
}

/// Scores the experts by what the router reads and chooses the best.
pub(crate) fn route(b: &mut Builder<'_>, e: &Experts, x: View, expert_scale: Option<TensorId>) -> Routing {
    let scores = b.linear("router", x, "ffn_gate_inp");
    let renormalize = if e.renormalize { Renormalize::Chosen } else { Renormalize::Keep };
    let (experts, weights) = b.r.route("route", scores, e.top_k, (renormalize, expert_scale));
    Routing { experts, weights }
}

/// The weighted sum of the chosen experts' gated linear units.
pub(crate) fn experts(b: &mut Builder<'_>, e: &Experts, x: View, to: Routing) -> View {
    let act = b.activation();
    let h = if e.packed {
        let gate_up = expert_linear(b, "gate_up_proj", x, ("ffn_gate_up_exps", to, ExpertInput::Shared));
        b.r.packed_expert_glu("glu", gate_up, e.top_k, act)
    } else {
        let gate = expert_linear(b, "gate_proj", x, ("ffn_gate_exps", to, ExpertInput::Shared));
        let up = expert_linear(b, "up_proj", x, ("ffn_up_exps", to, ExpertInput::Shared));
        b.r.glu("glu", gate, up, act)
    };
    let h = expert_linear(b, "down_proj", h, ("ffn_down_exps", to, ExpertInput::PerExpert));
    b.r.expert_sum("sum", h, to.weights)
}

fn expert_linear(
    b: &mut Builder<'_>,
    op: &str,
    x: View,
    (name, to, input): (&str, Routing, ExpertInput),
) -> View {
    let weight = b.weight(&format!("{name}.weight"));
    b.r.expert_mat_mul(op, x, to.experts, (weight, input))
}
