//! Llama (Touvron et al. 2023): a norm before each half of a layer.

use hf2q_plan::View;

use crate::attention::self_attention;
use crate::builder::Builder;
use crate::feed_forward::gated;

/// One layer: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) fn layer(b: &mut Builder<'_>, x: View) -> View {
    b.part("attn");
    let h = b.norm("norm", x, "attn_norm");
    let (x, h) = self_attention(b, x, h);
    let x = b.r.add("add", x, h);

    b.part("ffn");
    let h = b.norm("norm", x, "ffn_norm");
    let h = gated(b, h);
    b.r.add("add", x, h)
}
