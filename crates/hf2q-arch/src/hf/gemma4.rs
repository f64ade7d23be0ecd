//! Gemma 4, text part.

use super::Common;
use super::json::Object;
use super::rope::{self, HfRope, Usual};
use crate::architecture::Architecture;
use crate::config::{Config, Experts, Layer, first_of_kind, kv_sources};
use crate::error::ArchError;
use crate::rope::{Rope, RopeFactors, RopeScaling};

pub(super) fn read(text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    let unified = text.text("model_type")? == Some("gemma4_unified_text");
    if text.text("use_bidirectional_attention")? == Some("all") {
        return Err(text.error("use_bidirectional_attention", "all", "absent or vision"));
    }
    let context = text.size("max_position_embeddings")?.unwrap_or(if unified { 262_144 } else { 131_072 });
    let window = text.size("sliding_window")?.unwrap_or(if unified { 1024 } else { 512 });
    let window = u32::try_from(window).map_err(|_| text.error("sliding_window", window, "a window"))?;
    let heads = Heads::read(text, common.layers)?;
    let ropes = ropes(text, &heads, context)?;
    let per_layer_embedding = per_layer_embedding(text, &common, unified)?;
    let softcap = text.number("final_logit_softcapping")?.filter(|&cap| cap != 0.0);
    let experts = experts(text)?;
    let layers = layers(text, &common, &heads, (window, &ropes))?;
    let factors = layers.iter().any(|l| l.rope.factors).then_some(ropes.factors);
    Ok(Config {
        final_softcap: softcap,
        per_layer_embedding,
        layer_scale: true,
        experts,
        rope_factors: factors,
        ..common.config(context, layers)
    })
}

fn layers(
    text: &Object<'_>,
    common: &Common,
    heads: &Heads,
    (window, ropes): (u32, &Ropes),
) -> Result<Vec<Layer>, ArchError> {
    let k_eq_v = text.flag("attention_k_eq_v")?.unwrap_or(false);
    let double_wide = text.flag("use_double_wide_mlp")?.unwrap_or(false);
    let windows: Vec<Option<u32>> = heads.windowed.iter().map(|w| w.then_some(window)).collect();
    let kv_from = kv_from(text, common, &windows)?;
    let layer = |i: usize| {
        let windowed = windows[i].is_some();
        let kv_from = kv_from[i];
        Layer {
            window: windows[i],
            heads: common.heads,
            kv_heads: heads.kv_heads[i],
            head_dim: heads.head_dims[i],
            attention_scale: 1.0,
            rope: if windowed { ropes.local } else { ropes.global },
            kv_from,
            v_from_k: k_eq_v && !windowed && kv_from.is_none(),
            ffn: Some(if double_wide && kv_from.is_some() { 2 * common.ffn } else { common.ffn }),
        }
    };
    Ok((0..common.layers).map(layer).collect())
}

/// Which layers read keys and values of others.
fn kv_from(
    text: &Object<'_>,
    common: &Common,
    windows: &[Option<u32>],
) -> Result<Vec<Option<usize>>, ArchError> {
    const KEY: &str = "num_kv_shared_layers";
    let shared = text.size(KEY)?.unwrap_or(0);
    if common.architecture == Architecture::Gemma4Assistant {
        return match shared {
            0 => Ok(first_of_kind(windows)),
            n if n == common.layers => Ok(first_of_kind(windows)),
            _ => Err(text.error(KEY, shared, format!("all layers, {}", common.layers))),
        };
    }
    let sources = common.layers.checked_sub(shared).and_then(|owners| kv_sources(windows, owners));
    let accepted = "a number of last layers that leaves an earlier one of each kind";
    sources.ok_or_else(|| text.error(KEY, shared, accepted))
}

/// What may differ from layer to layer.
struct Heads {
    windowed: Vec<bool>,
    head_dims: Vec<usize>,
    kv_heads: Vec<usize>,
}

impl Heads {
    fn read(text: &Object<'_>, layers: usize) -> Result<Self, ArchError> {
        let mut windowed = match text.layer_types(layers)? {
            Some(types) => types,
            None => (0..layers).map(|i| (i + 1) % 6 != 0).collect(),
        };
        // `transformers` makes the last layer global whatever the file says.
        if let Some(last) = windowed.last_mut() {
            *last = false;
        }
        let head_dim = text.size("head_dim")?.unwrap_or(256);
        let kv_heads = text.size("num_key_value_heads")?.unwrap_or(4);
        let mut heads =
            Self { head_dims: vec![head_dim; layers], kv_heads: vec![kv_heads; layers], windowed };
        let global_head_dim = text.size("global_head_dim")?.unwrap_or(512);
        let global_kv_heads = text.size("num_global_key_value_heads")?;
        let k_eq_v = text.flag("attention_k_eq_v")?.unwrap_or(false);
        if let Some(overrides) = text.object("per_layer_config")? {
            heads.apply(&overrides)?;
            return Ok(heads);
        }
        for i in (0..layers).filter(|&i| !heads.windowed[i]) {
            heads.head_dims[i] = global_head_dim;
            heads.kv_heads[i] = global_kv_heads.filter(|_| k_eq_v).unwrap_or(kv_heads);
        }
        Ok(heads)
    }

    fn apply(&mut self, overrides: &Object<'_>) -> Result<(), ArchError> {
        for (key, layer) in overrides.objects()? {
            let index = key.parse().ok().filter(|&i: &usize| i < self.windowed.len());
            let Some(i) = index else {
                return Err(overrides.error(key, "not a layer", format!("0 to {}", self.windowed.len() - 1)));
            };
            self.head_dims[i] = layer.size("head_dim")?.unwrap_or(self.head_dims[i]);
            self.kv_heads[i] = layer.size("num_key_value_heads")?.unwrap_or(self.kv_heads[i]);
            layer.refuse_unknown()?;
        }
        Ok(())
    }

    /// Head size of the first layer of a kind, or else of the first layer.
    fn head_dim(&self, windowed: bool) -> usize {
        let first = self.windowed.iter().position(|&w| w == windowed).unwrap_or(0);
        self.head_dims.get(first).copied().unwrap_or(0)
    }
}

struct Ropes {
    local: Rope,
    global: Rope,
    factors: RopeFactors,
}

fn ropes(text: &Object<'_>, heads: &Heads, context: usize) -> Result<Ropes, ArchError> {
    let parameters = text.object("rope_parameters")?;
    let (local_dim, global_dim) = (heads.head_dim(true), heads.head_dim(false));
    let of_kind = |key: &str, usual: Usual| -> Result<Option<HfRope>, ArchError> {
        let Some(all) = &parameters else { return Ok(None) };
        all.object(key)?.map(|p| rope::parse(&p, usual)).transpose()
    };
    let usual = Usual { base: 10_000.0, head_dim: local_dim, context };
    let local = of_kind("sliding_attention", usual)?.unwrap_or(HfRope {
        base: usual.base,
        scaling: RopeScaling::None,
        factors: None,
    });
    if local.scaling != RopeScaling::None || local.factors.is_some() {
        return Err(text.error("rope_parameters.sliding_attention.rope_type", "of another kind", "default"));
    }
    let pairs = global_dim / 2;
    let usual = Usual { base: 1_000_000.0, head_dim: global_dim, context };
    let global = of_kind("full_attention", usual)?.unwrap_or(HfRope {
        base: usual.base,
        scaling: RopeScaling::None,
        factors: Some(RopeFactors::Proportional { rotated: pairs / 4, pairs }),
    });
    if let Some(all) = &parameters {
        all.refuse_unknown()?;
    }
    // The file always holds factors for global layers; plain rotation means that all pairs rotate.
    let factors = global.factors.unwrap_or(RopeFactors::Proportional { rotated: pairs, pairs });
    if !matches!(factors, RopeFactors::Proportional { .. }) {
        let accepted = "proportional, default, linear or yarn";
        return Err(text.error("rope_parameters.full_attention.rope_type", "llama3", accepted));
    }
    let rope = |base, dims, scaling, factors| Rope { base, dims, scaling, factors };
    Ok(Ropes {
        local: rope(local.base, local_dim, RopeScaling::None, false),
        global: rope(global.base, global_dim, global.scaling, true),
        factors,
    })
}

fn per_layer_embedding(
    text: &Object<'_>,
    common: &Common,
    unified: bool,
) -> Result<Option<usize>, ArchError> {
    const ROWS: &str = "vocab_size_per_layer_input";
    let usual = if unified { 0 } else { 256 };
    // An explicit null switches the embeddings off.
    let given = text.size("hidden_size_per_layer_input")?;
    let width = given.unwrap_or(if text.names("hidden_size_per_layer_input") { 0 } else { usual });
    let rows = text.size(ROWS)?.unwrap_or(262_144);
    if width == 0 {
        return Ok(None);
    }
    if rows != common.vocab {
        return Err(text.error(ROWS, rows, format!("vocab_size, {}", common.vocab)));
    }
    Ok(Some(width))
}

fn experts(text: &Object<'_>) -> Result<Option<Experts>, ArchError> {
    let (count, top_k) = (text.size("num_experts")?, text.size("top_k_experts")?);
    let ffn = text.size("moe_intermediate_size")?;
    if !text.flag("enable_moe_block")?.unwrap_or(false) {
        return Ok(None);
    }
    Ok(Some(Experts {
        count: text.required("num_experts", count)?,
        top_k: text.required("top_k_experts", top_k)?,
        ffn: text.required("moe_intermediate_size", ffn)?,
        renormalize: true,
        packed: true,
        scaled: true,
    }))
}
