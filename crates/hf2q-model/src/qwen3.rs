//! Qwen 3: Llama with norms of query and key heads; in the mixture of experts every feed-forward network is one.

use hf2q_plan::View;

use crate::attention::self_attention;
use crate::builder::Builder;
use crate::feed_forward::{experts, gated, route};

/// One layer: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) fn layer(b: &mut Builder<'_>, x: View) -> View {
    b.part("attn");
    let h = b.norm("norm", x, "attn_norm");
    let (x, h) = self_attention(b, x, h);
    let x = b.r.add("add", x, h);

    b.part("ffn");
    let h = b.norm("norm", x, "ffn_norm");
    let h = match &b.config.experts {
        Some(e) => {
            b.part("moe");
            let to = route(b, e, h, None);
            experts(b, e, h, to)
        }
        None => gated(b, h),
    };
    b.part("ffn");
    b.r.add("add", x, h)
}
