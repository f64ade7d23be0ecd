//! Gemma 3, text part.

use super::Common;
use super::json::Object;
use super::rope::{self, HfRope, Usual};
use crate::config::{Config, Layer, inverse_sqrt};
use crate::error::ArchError;
use crate::rope::{Rope, RopeScaling};

pub(super) fn read(text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    text.refuse_flag("use_bidirectional_attention")?;
    text.refuse_unless_empty("attn_logit_softcapping")?;
    let softcap = text.number("final_logit_softcapping")?.filter(|&cap| cap != 0.0);
    let head_dim = text.size("head_dim")?.unwrap_or(256);
    let context = text.size("max_position_embeddings")?.unwrap_or(131_072);
    let scalar = text.number("query_pre_attn_scalar")?.unwrap_or(256.0);
    let [local, global] = ropes(text, Usual { base: 0.0, head_dim, context })?;
    let windowed = windowed(text, common.layers)?;
    let window = text.size("sliding_window")?.unwrap_or(4096);
    let window = u32::try_from(window).map_err(|_| text.error("sliding_window", window, "a window"))?;
    let kv_heads = text.size("num_key_value_heads")?.unwrap_or(4);
    let layer = |windowed: bool| {
        let rope = if windowed { &local } else { &global };
        Layer {
            window: windowed.then_some(window),
            heads: common.heads,
            kv_heads,
            head_dim,
            attention_scale: inverse_sqrt(scalar.into()),
            rope: Rope { base: rope.base, dims: head_dim, scaling: rope.scaling, factors: false },
            kv_from: None,
            v_from_k: false,
            ffn: Some(common.ffn),
        }
    };
    let layers = windowed.into_iter().map(layer).collect();
    Ok(Config { final_softcap: softcap, ..common.config(context, layers) })
}

fn windowed(text: &Object<'_>, layers: usize) -> Result<Vec<bool>, ArchError> {
    let old = text.size("_sliding_window_pattern")?;
    let period = text.size("sliding_window_pattern")?.or(old).unwrap_or(6);
    if let Some(types) = text.layer_types(layers)? {
        return Ok(types);
    }
    if period == 0 {
        return Err(text.error("sliding_window_pattern", 0, "a period of at least 1"));
    }
    Ok((0..layers).map(|i| (i + 1) % period != 0).collect())
}

/// Rotation of windowed and of global layers.
fn ropes(text: &Object<'_>, usual: Usual) -> Result<[HfRope; 2], ArchError> {
    let local = Usual { base: text.number("rope_local_base_freq")?.unwrap_or(10_000.0), ..usual };
    let global = Usual { base: text.number("rope_theta")?.unwrap_or(1_000_000.0), ..usual };
    let old = text.object("rope_scaling")?;
    let new = text.object("rope_parameters")?;
    let of_kind = |key: &str, usual: Usual| -> Result<HfRope, ArchError> {
        match new.as_ref().map(|p| p.object(key)).transpose()?.flatten() {
            Some(parameters) => rope::parse(&parameters, usual),
            None => Ok(HfRope { base: usual.base, scaling: RopeScaling::None, factors: None }),
        }
    };
    let mut ropes = [of_kind("sliding_attention", local)?, of_kind("full_attention", global)?];
    if let Some(scaling) = old {
        ropes[1] = rope::parse(&scaling, Usual { base: ropes[1].base, ..usual })?;
    }
    if let Some(parameters) = &new {
        parameters.refuse_unknown()?;
    }
    let plain = |r: &HfRope| r.factors.is_none();
    if ropes[0].scaling != RopeScaling::None || !ropes.iter().all(plain) {
        let accepted = "default for sliding_attention; default, linear or yarn for full_attention";
        return Err(text.error("rope_type", "of another kind", accepted));
    }
    Ok(ropes)
}
