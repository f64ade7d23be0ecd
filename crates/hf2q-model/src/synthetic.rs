//! Random weights of real models' shapes, to measure speed without a download.

use std::collections::HashMap;

use hf2q_arch::{Class, Config, Source, TensorRow};
use hf2q_gguf::{Bytes, TensorType};
use serde_json::{Value, json};

use crate::error::ModelError;
use crate::model::{Model, StoredTensor};

/// Elements of the pool of encoded rows from which a tensor is filled.
const POOL: usize = 1 << 20;

/// Makes the model `NAME:TYPE`, for example `gemma4-26b-a4b:q4_0`; `q4_k_m` is the mix of types of that name.
///
/// # Errors
/// If the name is none of [`names`], or the type cannot be encoded.
pub fn model(spec: &str) -> Result<Model, ModelError> {
    let (config, kind) = parse(spec)?;
    let mut pools = Pools::default();
    let layers = config.layers.len();
    let weights = rows(&config)
        .map(|row| (row.gguf.clone(), tensor(&row, kind.stored(&row, layers), &mut pools)))
        .collect();
    Model::new(config, weights)
}

/// Bytes of the weights that [`model`] makes.
///
/// # Errors
/// As [`model`].
pub fn weight_bytes(spec: &str) -> Result<u64, ModelError> {
    let (config, kind) = parse(spec)?;
    let layers = config.layers.len();
    let bytes = |row: TensorRow| {
        let row_bytes = kind.stored(&row, layers).row_bytes(row.shape[0]).expect("the type fits the row");
        row.shape[1..].iter().fold(row_bytes as u64, |bytes, &dim| bytes * dim as u64)
    };
    Ok(rows(&config).map(bytes).sum())
}

/// Types of all matrices.
#[derive(Clone, Copy)]
enum Kind {
    /// One for all.
    One(TensorType),
    /// What `llama-quantize` makes of a model as `Q4_K_M`.
    Q4KM,
}

impl Kind {
    fn from_name(name: &str) -> Option<Self> {
        let one = || TensorType::from_name(name).filter(|&t| hf2q_quant::can_encode(t)).map(Self::One);
        if name.eq_ignore_ascii_case("q4_k_m") { Some(Self::Q4KM) } else { one() }
    }

    /// The type of a tensor of a model of so many layers.
    fn stored(self, row: &TensorRow, layers: usize) -> TensorType {
        let wanted = match self {
            Self::One(ty) => ty,
            Self::Q4KM => return q4_k_m(row, layers),
        };
        stored_type(row, wanted)
    }
}

/// Embeddings and, in some layers, values and the last matrices of networks have more bits; rows that are no whole blocks of
/// 256 have a type of blocks of 32.
fn q4_k_m(row: &TensorRow, layers: usize) -> TensorType {
    let layer = row.gguf.split('.').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
    let eighth = layers / 8;
    let more = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
    let embeds = row.gguf.starts_with("token_embd") || row.gguf.starts_with("output.");
    let precise = embeds || more && ["attn_v.", "ffn_down"].iter().any(|name| row.gguf.contains(name));
    let whole = row.shape[0].is_multiple_of(256);
    let wanted = match (precise, whole) {
        (true, true) => TensorType::Q6K,
        (true, false) => TensorType::Q8_0,
        (false, true) => TensorType::Q4K,
        (false, false) => TensorType::Q5_0,
    };
    stored_type(row, wanted)
}

fn parse(spec: &str) -> Result<(Config, Kind), ModelError> {
    let (name, ty) = spec.split_once(':').unwrap_or((spec, ""));
    let unknown = || ModelError::Synthetic { spec: spec.to_owned(), accepted: accepted() };
    let (_, json) = presets().into_iter().find(|(n, _)| *n == name).ok_or_else(unknown)?;
    let kind = Kind::from_name(ty).ok_or_else(unknown)?;
    Ok((Config::from_hf(&json)?, kind))
}

fn rows(config: &Config) -> impl Iterator<Item = TensorRow> {
    config.tensors().into_iter().filter(|row| !row.optional)
}

/// Names that [`model`] knows.
pub fn names() -> Vec<&'static str> {
    presets().into_iter().map(|(name, _)| name).collect()
}

fn accepted() -> String {
    let types: Vec<&str> = hf2q_quant::encodable().map(TensorType::name).collect();
    format!("{} with one of {}, q4_k_m", names().join(", "), types.join(", "))
}

fn is_exact(row: &TensorRow) -> bool {
    matches!(row.class, Class::Norm | Class::Router | Class::Scalar) || row.shape.len() < 2
}

fn stored_type(row: &TensorRow, wanted: TensorType) -> TensorType {
    match (is_exact(row), row.shape[0].is_multiple_of(wanted.block_len())) {
        (true, _) => TensorType::F32,
        (false, true) => wanted,
        (false, false) => TensorType::F16,
    }
}

fn tensor(row: &TensorRow, ty: TensorType, pools: &mut Pools) -> StoredTensor {
    let exact = is_exact(row);
    let data = match &row.source {
        Source::Computed(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ if exact && row.class != Class::Router => {
            vec![1.0_f32.to_le_bytes(); row.shape.iter().product()].concat()
        }
        _ => pools.fill(ty, row.shape[0], row.shape[1..].iter().product()),
    };
    StoredTensor { ty, shape: row.shape.clone(), data: Bytes::from_vec(data) }
}

/// Encoded random rows by type and length.
#[derive(Default)]
struct Pools {
    rows: HashMap<(TensorType, usize), Vec<u8>>,
    drawn: u64,
}

impl Pools {
    /// `count` rows of `cols` values with a variance of `1 / cols`, so that products keep the size of their input.
    fn fill(&mut self, ty: TensorType, cols: usize, count: usize) -> Vec<u8> {
        let drawn = &mut self.drawn;
        let pool = self.rows.entry((ty, cols)).or_insert_with(|| {
            let spread = (3.0 / cols as f32).sqrt();
            let values: Vec<f32> =
                (0..(POOL / cols).max(1) * cols).map(|_| spread * symmetric(drawn)).collect();
            let mut bytes = Vec::new();
            hf2q_quant::quantize(ty, &values, &mut bytes).expect("whole rows of finite values");
            bytes
        });
        let total = ty.row_bytes(cols).expect("the type fits the row") * count;
        let mut out = Vec::with_capacity(total);
        while out.len() < total {
            out.extend_from_slice(&pool[..pool.len().min(total - out.len())]);
        }
        out
    }
}

/// Uniform in -1 .. 1; SplitMix64 (Steele et al. 2014) of a counter.
fn symmetric(counter: &mut u64) -> f32 {
    *counter += 1;
    let z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
}

fn presets() -> Vec<(&'static str, Value)> {
    let gemma4 = |size: Gemma4| size.json();
    vec![
        ("gemma4-26b-a4b", gemma4(Gemma4 { experts: Some((128, 8, 704)), ..GEMMA4_26B })),
        (
            "gemma4-31b",
            gemma4(Gemma4 { hidden: 5376, layers: 60, heads: 32, kv: (16, 4), ffn: 21504, ..GEMMA4_26B }),
        ),
        ("gemma4-12b", gemma4(Gemma4 { hidden: 3840, layers: 48, kv: (8, 1), ffn: 15360, ..GEMMA4_26B })),
        (
            "gemma4-e4b",
            gemma4(Gemma4 { hidden: 2560, layers: 42, kv: (2, 2), ffn: 10240, shared: 18, ..GEMMA4_E2B }),
        ),
        ("gemma4-e2b", gemma4(Gemma4 { wide: true, ..GEMMA4_E2B })),
        ("gemma3-270m", gemma3_270m()),
        ("smollm2-135m", smollm2_135m()),
        ("llama3.2-1b", llama32_1b()),
        ("qwen3-0.6b", qwen3_06b()),
        ("qwen3-30b-a3b", qwen3_30b_a3b()),
    ]
}

/// What the sizes of Gemma 4 differ in.
struct Gemma4 {
    hidden: usize,
    layers: usize,
    /// One layer in so many sees everything.
    period: usize,
    heads: usize,
    /// Of sliding and of global layers.
    kv: (usize, usize),
    ffn: usize,
    window: usize,
    /// Count, used for each row, inner width.
    experts: Option<(usize, usize, usize)>,
    /// Late layers that reuse keys and values.
    shared: usize,
    /// Those layers have a feed-forward network of twice the width.
    wide: bool,
    /// Width of each layer's own embedding.
    per_layer: usize,
    k_eq_v: bool,
}

const GEMMA4_26B: Gemma4 = Gemma4 {
    hidden: 2816,
    layers: 30,
    period: 6,
    heads: 16,
    kv: (8, 2),
    ffn: 2112,
    window: 1024,
    experts: None,
    shared: 0,
    wide: false,
    per_layer: 0,
    k_eq_v: true,
};

const GEMMA4_E2B: Gemma4 = Gemma4 {
    hidden: 1536,
    layers: 35,
    period: 5,
    heads: 8,
    kv: (1, 1),
    ffn: 6144,
    window: 512,
    experts: None,
    shared: 20,
    wide: false,
    per_layer: 256,
    k_eq_v: false,
};

impl Gemma4 {
    fn json(&self) -> Value {
        let kind = |i: usize| {
            if (i + 1).is_multiple_of(self.period) { "full_attention" } else { "sliding_attention" }
        };
        let types: Vec<&str> = (0..self.layers).map(kind).collect();
        json!({
            "model_type": "gemma4_text",
            "attention_k_eq_v": self.k_eq_v,
            "enable_moe_block": self.experts.is_some(),
            "num_experts": self.experts.map(|e| e.0),
            "top_k_experts": self.experts.map(|e| e.1),
            "moe_intermediate_size": self.experts.map(|e| e.2),
            "final_logit_softcapping": 30.0,
            "head_dim": 256,
            "global_head_dim": 512,
            "hidden_size": self.hidden,
            "hidden_size_per_layer_input": self.per_layer,
            "intermediate_size": self.ffn,
            "layer_types": types,
            "max_position_embeddings": 131_072,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv.0,
            "num_global_key_value_heads": self.kv.1,
            "num_hidden_layers": self.layers,
            "num_kv_shared_layers": self.shared,
            "use_double_wide_mlp": self.wide,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
                "full_attention": { "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6 },
            },
            "sliding_window": self.window,
            "tie_word_embeddings": true,
            "vocab_size": 262_144,
            "vocab_size_per_layer_input": 262_144,
        })
    }
}

fn gemma3_270m() -> Value {
    json!({
        "model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 2048, "sliding_window": 512,
        "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "vocab_size": 262_144,
    })
}

fn smollm2_135m() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "intermediate_size": 1536, "rope_theta": 1e5, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "vocab_size": 49152, "tie_word_embeddings": true,
    })
}

fn llama32_1b() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "rope_theta": 5e5,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "vocab_size": 128_256, "tie_word_embeddings": true,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    })
}

fn qwen3_06b() -> Value {
    json!({
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "rope_theta": 1e6,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "vocab_size": 151_936, "tie_word_embeddings": true,
    })
}

fn qwen3_30b_a3b() -> Value {
    json!({
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "rope_theta": 1e6,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "vocab_size": 151_936, "tie_word_embeddings": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_model_of_its_size() {
        let billions = |json: &Value| {
            let config = Config::from_hf(json).unwrap();
            let elements = |r: TensorRow| r.shape.iter().product::<usize>();
            config.tensors().into_iter().filter(|r| !r.optional).map(elements).sum::<usize>() as f64 / 1e9
        };
        let sizes = [25.23, 30.7, 11.91, 7.46, 4.63, 0.268, 0.1345, 1.236, 0.596, 30.53];
        for ((name, json), size) in presets().iter().zip(sizes) {
            let found = billions(json);
            assert!(
                (found / size - 1.0).abs() < 0.01,
                "{name}: {found:.3} billion parameters, {size} expected"
            );
        }
    }

    #[test]
    fn a_small_one_loads() {
        let model = model("smollm2-135m:q4_0").unwrap();
        assert_eq!(model.tensor("blk.0.ffn_up.weight").unwrap().ty, TensorType::Q4_0);
        let names = model.config().tensors().into_iter().filter(|row| !row.optional).map(|row| row.gguf);
        let bytes: usize = names.map(|name| model.tensor(&name).unwrap().data.len()).sum();
        assert_eq!(weight_bytes("smollm2-135m:q4_0").unwrap(), bytes as u64);
    }

    #[test]
    fn unknown_specs_list_what_is_known() {
        for spec in ["gpt-5:q4_0", "gemma4-31b:q9_9", "gemma4-31b", ""] {
            let message = model(spec).unwrap_err().to_string();
            assert!(message.contains("gemma4-26b-a4b") && message.contains("q4_0"), "{message}");
        }
    }
}
