//! Metadata to configuration.

use hf2q_gguf::Metadata;

use super::reader::Reader;
use crate::architecture::{Architecture, accepted_names};
use crate::config::{Assistant, Centroids, Config, Eagle, Experts, Layer, first_of_kind, kv_sources};
use crate::error::{ArchError, Origin};
use crate::rope::{Rope, RopeFactors, RopeScaling};
use crate::validate::{MAX_LAYERS, validate};

/// Whether a file holds a tensor with this name.
type HasTensor<'a> = &'a dyn Fn(&str) -> bool;

impl Config {
    /// Reads the keys that llama.cpp writes. What metadata leaves open is told by the tensors that are there: a missing
    /// `output.weight` means a tied output, a missing `attn_v.weight` of a global Gemma 4 layer means values from keys.
    ///
    /// # Errors
    /// If a key is missing or malformed, or asks for something that is not implemented.
    pub fn from_metadata(metadata: &Metadata, has_tensor: HasTensor<'_>) -> Result<Self, ArchError> {
        const KEY: &str = "general.architecture";
        let name = metadata.str(KEY)?;
        let Some(architecture) = Architecture::from_name(name) else {
            let (found, accepted) = (name.to_owned(), accepted_names());
            let origin = Origin::Metadata;
            return Err(ArchError::UnknownArchitecture { origin, key: KEY, found, accepted });
        };
        let r = Reader { metadata, architecture };
        refuse_unsupported(&r)?;
        let layers = r.size("block_count")?;
        if layers > MAX_LAYERS {
            return Err(r.value("block_count", layers, format!("at most {MAX_LAYERS}")));
        }
        let config = read(&r, layers, has_tensor)?;
        validate(&config, Origin::Metadata)?;
        Ok(config)
    }
}

fn read(r: &Reader<'_>, layer_count: usize, has_tensor: HasTensor<'_>) -> Result<Config, ArchError> {
    let architecture = r.architecture;
    let hidden = r.size("embedding_length")?;
    let layers = layers(r, layer_count, hidden, has_tensor)?;
    Ok(Config {
        architecture,
        vocab: vocab(r)?,
        hidden,
        context_length: r.size("context_length")?,
        norm_eps: r.f32("attention.layer_norm_rms_epsilon")?,
        embedding_scale: architecture.embedding_scale(hidden),
        final_softcap: match architecture {
            // Other converters copy the target's.
            Architecture::Gemma4Assistant => None,
            _ => r.opt_f32("final_logit_softcapping")?.filter(|&cap| cap != 0.0),
        },
        tied_output: !has_tensor("output.weight"),
        per_layer_embedding: match architecture {
            Architecture::Gemma4 => {
                r.opt_size("embedding_length_per_layer_input")?.filter(|&width| width > 0)
            }
            _ => None,
        },
        layer_scale: architecture.is_gemma4() && has_tensor("blk.0.layer_output_scale.weight"),
        experts: experts(r, has_tensor)?,
        rope_factors: layers.iter().any(|l| l.rope.factors).then_some(RopeFactors::Stored),
        layers,
        assistant: assistant(r, has_tensor)?,
        eagle: eagle(r, hidden)?,
    })
}

/// What joins an assistant to its target, and its centroids where it has some.
fn assistant(r: &Reader<'_>, has_tensor: HasTensor<'_>) -> Result<Option<Assistant>, ArchError> {
    if r.architecture != Architecture::Gemma4Assistant {
        return Ok(None);
    }
    let centroids = match has_tensor("masked_embd_centroids.weight") {
        true => {
            Some(Centroids { count: r.size("num_centroids")?, top_k: r.size("centroid_intermediate_top_k")? })
        }
        false => None,
    };
    Ok(Some(Assistant { target_hidden: r.size("embedding_length_out")?, centroids }))
}

/// What joins a head to its target.
fn eagle(r: &Reader<'_>, hidden: usize) -> Result<Option<Eagle>, ArchError> {
    const LAYERS: &str = "target_layers";
    if r.architecture != Architecture::Eagle3 {
        return Ok(None);
    }
    let found = r.sizes(LAYERS)?;
    let target_layers =
        found.ok_or_else(|| ArchError::Missing { origin: Origin::Metadata, key: r.key(LAYERS) })?;
    let draft_vocab = match r.opt_size("draft_vocab_size")? {
        Some(size) => size,
        None => vocab(r)?,
    };
    Ok(Some(Eagle {
        target_hidden: r.opt_size("target_hidden_size")?.unwrap_or(hidden),
        target_layers,
        draft_vocab,
        norm_before_residual: r.opt_bool("norm_before_residual")?.unwrap_or(false),
        norm_before_fc: r.opt_bool("norm_before_fc")?.unwrap_or(false),
    }))
}

/// Values of keys that change results and that no code here follows.
fn refuse_unsupported(r: &Reader<'_>) -> Result<(), ArchError> {
    if r.opt_bool("attention.causal")? == Some(false) {
        return Err(r.value("attention.causal", "false", "true"));
    }
    for key in ["attn_logit_softcapping", "router_logit_softcapping", "logit_scale", "residual_scale"] {
        if let Some(found) = r.opt_f32(key)?.filter(|&x| x != 0.0) {
            return Err(r.value(key, found, "absent or 0"));
        }
    }
    // The layers of an assistant predict further tokens; in others they would stand behind the last layer.
    let is_assistant = r.architecture == Architecture::Gemma4Assistant;
    for (key, accepted) in [("nextn_predict_layers", is_assistant), ("expert_shared_count", false)] {
        if let Some(found) = r.opt_size(key)?.filter(|&n| n != 0 && !accepted) {
            return Err(r.value(key, found, "absent or 0"));
        }
    }
    if let Some(found) = r.opt_size("expert_group_count")?.filter(|&n| n > 1) {
        return Err(r.value("expert_group_count", found, "absent, 0 or 1"));
    }
    // Function 1 is the softmax; 0 means that the file does not say.
    if let Some(found) = r.opt_size("expert_gating_func")?.filter(|&n| n > 1) {
        return Err(r.value("expert_gating_func", found, "1 (softmax)"));
    }
    if let Some(found) = r.opt_f32("expert_weights_scale")?.filter(|&x| x != 0.0 && x != 1.0) {
        return Err(r.value("expert_weights_scale", found, "absent, 0 or 1"));
    }
    Ok(())
}

fn vocab(r: &Reader<'_>) -> Result<usize, ArchError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    if r.metadata.get(TOKENS).is_some() {
        return Ok(r.metadata.strings(TOKENS)?.len());
    }
    r.size("vocab_size")
}

fn experts(r: &Reader<'_>, has_tensor: HasTensor<'_>) -> Result<Option<Experts>, ArchError> {
    let count = r.opt_size("expert_count")?.unwrap_or(0);
    if count == 0 {
        return if r.architecture == Architecture::Qwen3Moe {
            Err(r.value("expert_count", 0, "the number of experts"))
        } else {
            Ok(None)
        };
    }
    if !matches!(r.architecture, Architecture::Gemma4 | Architecture::Qwen3Moe) {
        return Err(r.value("expert_count", count, "absent or 0: only gemma4 and qwen3moe have experts"));
    }
    let gemma = r.architecture == Architecture::Gemma4;
    Ok(Some(Experts {
        count,
        top_k: r.size("expert_used_count")?,
        ffn: r.size("expert_feed_forward_length")?,
        renormalize: r.opt_bool("expert_weights_norm")?.unwrap_or(true),
        packed: gemma && !has_tensor("blk.0.ffn_gate_exps.weight"),
        scaled: gemma && has_tensor("blk.0.ffn_down_exps.scale"),
    }))
}

fn layers(
    r: &Reader<'_>,
    count: usize,
    hidden: usize,
    has_tensor: HasTensor<'_>,
) -> Result<Vec<Layer>, ArchError> {
    let heads = r
        .per_layer("attention.head_count", count)?
        .ok_or_else(|| ArchError::Missing { origin: Origin::Metadata, key: r.key("attention.head_count") })?;
    let kv_heads = r.per_layer("attention.head_count_kv", count)?.unwrap_or_else(|| heads.clone());
    let ffn = dense_widths(r, count)?;
    let windows = windows(r, count)?;
    let kv_from = shared_kv(r, &windows)?;
    let kinds = Kinds::read(r, hidden / heads.first().copied().unwrap_or(1).max(1), has_tensor)?;
    let mut layers = Vec::with_capacity(count);
    for (i, &window) in windows.iter().enumerate() {
        let kind = if window.is_some() { &kinds.windowed } else { &kinds.global };
        let usual = Config::usual_attention_scale(r.architecture, count, (hidden, heads[i], kind.head_dim));
        let no_v = || !has_tensor(&format!("blk.{i}.attn_v.weight"));
        layers.push(Layer {
            window,
            heads: heads[i],
            kv_heads: kv_from[i].map_or(kv_heads[i], |from| kv_heads[from]),
            head_dim: kind.head_dim,
            attention_scale: r.opt_f32("attention.scale")?.filter(|&s| s != 0.0).unwrap_or(usual),
            rope: kind.rope,
            kv_from: kv_from[i],
            v_from_k: r.architecture == Architecture::Gemma4
                && window.is_none()
                && kv_from[i].is_none()
                && no_v(),
            ffn: ffn.as_ref().map(|f| f[i]),
        });
    }
    Ok(layers)
}

/// Inner widths of the dense networks; `None` where experts take their place.
fn dense_widths(r: &Reader<'_>, layers: usize) -> Result<Option<Vec<usize>>, ArchError> {
    const KEY: &str = "feed_forward_length";
    if r.architecture == Architecture::Qwen3Moe {
        return Ok(None);
    }
    let missing = || ArchError::Missing { origin: Origin::Metadata, key: r.key(KEY) };
    r.per_layer(KEY, layers)?.ok_or_else(missing).map(Some)
}

fn windows(r: &Reader<'_>, layers: usize) -> Result<Vec<Option<u32>>, ArchError> {
    const WINDOW: &str = "attention.sliding_window";
    const PATTERN: &str = "attention.sliding_window_pattern";
    let window = r.opt_size(WINDOW)?.filter(|&w| w > 0).and_then(|w| u32::try_from(w).ok());
    let pattern = match r.architecture {
        _ if window.is_none() => vec![false; layers],
        Architecture::Gemma3 => r.pattern(PATTERN, layers, 6)?,
        Architecture::Gemma4 | Architecture::Gemma4Assistant => match r.metadata.get(&r.key(PATTERN)) {
            Some(_) => r.pattern(PATTERN, layers, 6)?,
            None => return Err(ArchError::Missing { origin: Origin::Metadata, key: r.key(PATTERN) }),
        },
        Architecture::Llama | Architecture::Eagle3 => vec![true; layers],
        Architecture::Qwen3 | Architecture::Qwen3Moe => vec![false; layers],
    };
    Ok(pattern.into_iter().map(|windowed| window.filter(|_| windowed)).collect())
}

fn shared_kv(r: &Reader<'_>, windows: &[Option<u32>]) -> Result<Vec<Option<usize>>, ArchError> {
    const KEY: &str = "attention.shared_kv_layers";
    if r.architecture == Architecture::Gemma4Assistant {
        return Ok(first_of_kind(windows));
    }
    let shared = if r.architecture == Architecture::Gemma4 { r.opt_size(KEY)?.unwrap_or(0) } else { 0 };
    let sources = windows.len().checked_sub(shared).and_then(|owners| kv_sources(windows, owners));
    sources.ok_or_else(|| {
        r.value(
            KEY,
            shared,
            "a number of last layers that leaves an earlier one of each kind (windowed, global)",
        )
    })
}

/// Head size and rotation of windowed and of global layers.
struct Kinds {
    windowed: Kind,
    global: Kind,
}

struct Kind {
    head_dim: usize,
    rope: Rope,
}

impl Kinds {
    fn read(r: &Reader<'_>, usual_head_dim: usize, has_tensor: HasTensor<'_>) -> Result<Self, ArchError> {
        let has_factors = match r.architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => true,
            Architecture::Llama | Architecture::Eagle3 => has_tensor("rope_freqs.weight"),
            _ => false,
        };
        let head_dim = head_dim(r, "", usual_head_dim)?;
        let rope = Rope {
            base: r.opt_f32("rope.freq_base")?.unwrap_or(10_000.0),
            dims: r.opt_size("rope.dimension_count")?.unwrap_or(head_dim),
            scaling: scaling(r)?,
            factors: has_factors,
        };
        let global = Kind { head_dim, rope };
        let windowed = match r.architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => {
                Kind { head_dim: self::head_dim(r, "_swa", head_dim)?, rope: local(r, rope)? }
            }
            Architecture::Gemma3 => Kind { head_dim, rope: local(r, rope)? },
            _ => Kind { head_dim, rope },
        };
        Ok(Self { windowed, global })
    }
}

/// Windowed layers of Gemma have their own base and are never stretched.
fn local(r: &Reader<'_>, global: Rope) -> Result<Rope, ArchError> {
    let base = r.opt_f32("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let dims = r.opt_size("rope.dimension_count_swa")?.unwrap_or(global.dims);
    Ok(Rope { base, dims, scaling: RopeScaling::None, factors: false })
}

fn head_dim(r: &Reader<'_>, suffix: &str, usual: usize) -> Result<usize, ArchError> {
    let k = r.opt_size(&format!("attention.key_length{suffix}"))?.unwrap_or(usual);
    let key = format!("attention.value_length{suffix}");
    match r.opt_size(&key)? {
        Some(v) if v != k => Err(r.value(&key, v, format!("the length of the keys, {k}"))),
        _ => Ok(k),
    }
}

fn scaling(r: &Reader<'_>) -> Result<RopeScaling, ArchError> {
    const TYPE: &str = "rope.scaling.type";
    let factor = match r.opt_f32("rope.scaling.factor")? {
        Some(factor) => factor,
        None => r.opt_f32("rope.scale_linear")?.unwrap_or(0.0),
    };
    match r.opt_str(TYPE)?.unwrap_or("linear") {
        "none" => Ok(RopeScaling::None),
        "linear" | "yarn" if factor == 0.0 => Ok(RopeScaling::None),
        "linear" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor }),
        "yarn" => {
            let context = match r.opt_size("rope.scaling.original_context_length")? {
                Some(context) => context,
                None => r.size("context_length")?,
            };
            Ok(RopeScaling::Yarn {
                factor,
                attention_factor: r.opt_f32("rope.scaling.attn_factor")?.unwrap_or(1.0),
                beta_fast: r.opt_f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: r.opt_f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                original_context: u32::try_from(context).unwrap_or(u32::MAX),
            })
        }
        other => Err(r.value(TYPE, other, "none, linear or yarn")),
    }
}
