//! Llama, Mistral 7B, SmolLM2.

use super::Common;
use super::json::Object;
use super::rope::{self, Usual};
use crate::config::{Config, Layer, inverse_sqrt};
use crate::error::ArchError;
use crate::rope::Rope;

pub(super) fn read(text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    text.refuse_unless_empty("num_local_experts")?;
    let head_dim = match text.size("head_dim")? {
        Some(size) => size,
        None => common.hidden / common.heads.max(1),
    };
    let context = text.size("max_position_embeddings")?.unwrap_or(2048);
    let rope = rope::single(text, Usual { base: 10_000.0, head_dim, context })?;
    let layer = Layer {
        window: window(text, context)?,
        heads: common.heads,
        kv_heads: text.size("num_key_value_heads")?.unwrap_or(common.heads),
        head_dim,
        attention_scale: inverse_sqrt(head_dim as f64),
        rope: Rope {
            base: rope.base,
            dims: head_dim,
            scaling: rope.scaling,
            factors: rope.factors.is_some(),
        },
        kv_from: None,
        v_from_k: false,
        ffn: Some(common.ffn),
    };
    let layers = vec![layer; common.layers];
    Ok(Config { rope_factors: rope.factors, ..common.config(context, layers) })
}

/// The window of Mistral 7B v0.1; one that no position reaches is none.
fn window(text: &Object<'_>, context: usize) -> Result<Option<u32>, ArchError> {
    let found = text.size("sliding_window")?.filter(|&w| w < context);
    Ok(found.and_then(|w| u32::try_from(w).ok()))
}
