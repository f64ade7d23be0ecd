//! Mixture of experts. The router reads the residual stream by a norm without weights and a stored scale.

use hf2q_arch::Experts;
use hf2q_plan::{Norm, View};

use crate::builder::Builder;
use crate::feed_forward::{self, route};

/// `x` is the residual stream `[R, hidden]`.
pub(super) fn experts(b: &mut Builder<'_>, e: &Experts, x: View) -> View {
    b.part("moe");
    let scale = Norm { weight: Some(b.weight("ffn_gate_inp.scale")), eps: b.config.norm_eps };
    let scored = b.r.rms_norm("router_norm", x, scale);
    let scored = b.r.scale("router_scale", scored, (b.config.hidden as f32).powf(-0.5), None);
    let expert_scale = e.scaled.then(|| b.weight("ffn_down_exps.scale"));
    let to = route(b, e, scored, expert_scale);

    let h = b.norm("norm", x, "pre_ffw_norm_2");
    let h = feed_forward::experts(b, e, h, to);
    b.norm("post_norm", h, "post_ffw_norm_2")
}
