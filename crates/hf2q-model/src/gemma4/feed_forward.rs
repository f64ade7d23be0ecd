//! The dense network, and beside it the experts where a model has them.

use hf2q_plan::View;

use super::moe;
use crate::builder::Builder;
use crate::feed_forward::gated;

/// `x` is the residual stream `[R, hidden]`, not normalized: both sides have norms of their own.
pub(super) fn feed_forward(b: &mut Builder<'_>, x: View) -> View {
    let h = b.norm("norm", x, "ffn_norm");
    let dense = gated(b, h);
    let Some(e) = &b.config.experts else { return dense };
    let dense = b.norm("dense_norm", dense, "post_ffw_norm_1");
    let chosen = moe::experts(b, e, x);
    b.part("ffn");
    b.r.add("combine", dense, chosen)
}
