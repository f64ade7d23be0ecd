//! Gemma 3: norms before and after each half of a layer; windowed and global layers take turns.

use hf2q_plan::View;

use crate::attention::self_attention;
use crate::builder::Builder;
use crate::feed_forward::gated;

/// One layer: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) fn layer(b: &mut Builder<'_>, x: View) -> View {
    b.part("attn");
    let h = b.norm("norm", x, "attn_norm");
    let (x, h) = self_attention(b, x, h);
    let h = b.norm("post_norm", h, "post_attention_norm");
    let x = b.r.add("add", x, h);

    b.part("ffn");
    let h = b.norm("norm", x, "ffn_norm");
    let h = gated(b, h);
    let h = b.norm("post_norm", h, "post_ffw_norm");
    b.r.add("add", x, h)
}
