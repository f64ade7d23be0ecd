//! Qwen 3, dense and mixture of experts.

use super::Common;
use super::json::Object;
use super::rope::{self, Usual};
use crate::architecture::Architecture;
use crate::config::{Config, Experts, Layer, inverse_sqrt};
use crate::error::ArchError;
use crate::rope::Rope;

pub(super) fn read(text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    let experts = (common.architecture == Architecture::Qwen3Moe).then(|| experts(text)).transpose()?;
    refuse_windows(text, common.layers)?;
    let usual_head_dim = match common.architecture {
        Architecture::Qwen3Moe => common.hidden / common.heads.max(1),
        _ => 128,
    };
    let head_dim = text.size("head_dim")?.unwrap_or(usual_head_dim);
    let context = text.size("max_position_embeddings")?.unwrap_or(32_768);
    let rope = rope::single(text, Usual { base: 10_000.0, head_dim, context })?;
    if rope.factors.is_some() {
        return Err(text.error("rope_scaling", "llama3 or proportional", "default, linear or yarn"));
    }
    let layer = Layer {
        window: None,
        heads: common.heads,
        kv_heads: text.required_size("num_key_value_heads")?,
        head_dim,
        attention_scale: inverse_sqrt(head_dim as f64),
        rope: Rope { base: rope.base, dims: head_dim, scaling: rope.scaling, factors: false },
        kv_from: None,
        v_from_k: false,
        ffn: if experts.is_some() { None } else { Some(common.ffn) },
    };
    let layers = vec![layer; common.layers];
    Ok(Config { experts, ..common.config(context, layers) })
}

fn experts(text: &Object<'_>) -> Result<Experts, ArchError> {
    text.refuse_unless_empty("mlp_only_layers")?;
    text.refuse_number_unless("decoder_sparse_step", 1.0)?;
    let count = match text.size("num_experts")? {
        Some(count) => Some(count),
        None => text.size("num_local_experts")?,
    };
    Ok(Experts {
        count: text.required("num_experts", count)?,
        top_k: text.required_size("num_experts_per_tok")?,
        ffn: text.required_size("moe_intermediate_size")?,
        renormalize: text.flag("norm_topk_prob")?.unwrap_or(false),
        packed: false,
        scaled: false,
    })
}

/// A window is given in every file but used only where `use_sliding_window` says so.
fn refuse_windows(text: &Object<'_>, layers: usize) -> Result<(), ArchError> {
    text.refuse_flag("use_sliding_window")?;
    text.size("sliding_window")?;
    text.size("max_window_layers")?;
    match text.layer_types(layers)? {
        Some(windowed) if windowed.contains(&true) => {
            Err(text.error("layer_types", "sliding_attention", "full_attention alone"))
        }
        _ => Ok(()),
    }
}
