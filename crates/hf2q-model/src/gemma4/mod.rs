//! Gemma 4: Gemma 3's layer with normalized values, experts beside the dense network, per-layer embeddings and a number that
//! scales each layer's output.

mod attention;
mod feed_forward;
mod moe;
mod per_layer;

use hf2q_plan::View;

use crate::builder::Builder;
pub(crate) use per_layer::{PerLayer, inputs as per_layer_inputs};

/// One layer: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) fn layer(b: &mut Builder<'_>, x: View) -> View {
    b.part("attn");
    let h = b.norm("norm", x, "attn_norm");
    let (x, h) = attention::attention(b, x, h);
    let h = b.norm("post_norm", h, "post_attention_norm");
    let x = b.r.add("add", x, h);

    b.part("ffn");
    let h = feed_forward::feed_forward(b, x);
    let h = b.norm("post_norm", h, "post_ffw_norm");
    let x = b.r.add("add", x, h);

    let x = match b.per_layer {
        Some(inputs) => per_layer::add(b, x, inputs),
        None => x,
    };
    b.whole_layer();
    match b.optional_weight("layer_output_scale.weight") {
        Some(scale) => b.r.scale("scale", x, 1.0, Some(scale)),
        None => x,
    }
}
