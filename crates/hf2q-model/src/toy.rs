//! Tiny random models of every architecture and feature, without any file: what other crates test with.

use std::collections::HashMap;

use hf2q_arch::{
    Architecture, Assistant, Centroids, Class, Config, Eagle, Experts, Layer, Rope, RopeFactors, RopeScaling,
    Source, TensorRow,
};
use hf2q_gguf::{Bytes, TensorType};

use crate::model::{Model, StoredTensor};

/// Positions a windowed layer of a toy sees.
const WINDOW: u32 = 20;
const HIDDEN: usize = 64;
const FFN: usize = 96;
const HEADS: usize = 4;
const HEAD_DIM: usize = 32;

/// The toy of an architecture with the most features of its own; f32 weights that `seed` determines.
pub fn model(architecture: Architecture, seed: u64) -> Model {
    build(config(architecture), seed)
}

/// A toy for every feature: `gemma4-dense`, `gemma4-moe`, `gemma4-per-layer`, `gemma3`, `llama`, `llama-linear`, `llama-yarn`,
/// `llama3`, `llama-window`, `qwen3`, `qwen3moe`.
pub fn all(seed: u64) -> Vec<(&'static str, Model)> {
    configs().into_iter().map(|(name, config)| (name, build(config, seed))).collect()
}

/// Hyperparameters of [`model`].
pub fn config(architecture: Architecture) -> Config {
    match architecture {
        Architecture::Gemma4 => gemma4_moe(),
        Architecture::Gemma3 => gemma3(),
        Architecture::Llama => llama3(),
        Architecture::Qwen3 => qwen3(),
        Architecture::Qwen3Moe => qwen3_moe(),
        Architecture::Gemma4Assistant => gemma4_assistant(),
        Architecture::Eagle3 => eagle3(),
    }
}

/// Hyperparameters of [`all`].
pub fn configs() -> Vec<(&'static str, Config)> {
    vec![
        ("gemma4-dense", gemma4()),
        ("gemma4-moe", gemma4_moe()),
        ("gemma4-per-layer", gemma4_per_layer()),
        ("gemma3", gemma3()),
        ("llama", llama()),
        ("llama-linear", scaled(llama(), RopeScaling::Linear { factor: 4.0 })),
        ("llama-yarn", scaled(llama(), yarn())),
        ("llama3", llama3()),
        ("llama-window", windowed(llama())),
        ("qwen3", qwen3()),
        ("qwen3moe", qwen3_moe()),
    ]
}

/// A model with random f32 weights that `seed` determines, the same on every machine.
///
/// # Panics
/// If the parts of `config` do not fit together.
pub fn build(config: Config, seed: u64) -> Model {
    let tensor = |row: TensorRow| {
        let (ty, bytes) = match row.class {
            Class::Tokens => (TensorType::I32, backwards(row.shape[0])),
            Class::DraftTokens => (TensorType::I64, odd(row.shape[0])),
            _ => {
                let values = values(&row, &config, seed);
                (TensorType::F32, values.iter().flat_map(|x| x.to_le_bytes()).collect())
            }
        };
        (row.gguf, StoredTensor { ty, shape: row.shape, data: Bytes::from_vec(bytes) })
    };
    // A tied output stays tied.
    let stored = |row: &TensorRow| row.class != Class::Output || !row.optional;
    let weights: HashMap<String, StoredTensor> =
        config.tensors().into_iter().filter(stored).map(tensor).collect();
    Model::new(config, weights).expect("the weights are made from the tensor map")
}

/// The tokens below `count`, the last one first.
fn backwards(count: usize) -> Vec<u8> {
    (0..count as u32).rev().flat_map(u32::to_le_bytes).collect()
}

/// The first `count` odd tokens.
fn odd(count: usize) -> Vec<u8> {
    (0..count as i64).flat_map(|i| (2 * i + 1).to_le_bytes()).collect()
}

fn values(row: &TensorRow, config: &Config, seed: u64) -> Vec<f32> {
    if let Source::Computed(values) = &row.source {
        return values.clone();
    }
    let mut random = Random::new(&row.gguf, seed);
    let len = row.shape.iter().product();
    // Matrices keep the size of what they multiply; everything else is near its neutral value. Gemma 4 does not divide scores by
    // the head size, so its head norms are small.
    let (middle, spread) = match row.class {
        Class::Norm if config.architecture.is_gemma4() && is_head_norm(row) => (0.4, 0.1),
        Class::Norm => (1.0, 0.2),
        Class::Scalar if row.gguf.ends_with("ffn_gate_inp.scale") => (8.0, 2.0),
        Class::Scalar => (1.0, 0.2),
        Class::Embedding => (0.0, 1.0),
        _ => (0.0, (3.0 / row.shape[0] as f32).sqrt()),
    };
    (0..len).map(|_| middle + spread * random.symmetric()).collect()
}

fn is_head_norm(row: &TensorRow) -> bool {
    row.gguf.ends_with("attn_q_norm.weight") || row.gguf.ends_with("attn_k_norm.weight")
}

/// SplitMix64 (Steele et al. 2014), started from a name (FNV-1a) and a seed.
struct Random(u64);

impl Random {
    fn new(name: &str, seed: u64) -> Self {
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Uniform in -1 .. 1.
    fn symmetric(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }
}

fn base(architecture: Architecture, layers: Vec<Layer>) -> Config {
    let gemma = architecture.is_gemma();
    Config {
        architecture,
        vocab: 160,
        hidden: HIDDEN,
        context_length: 512,
        norm_eps: 1e-6,
        embedding_scale: if gemma { 8.0 } else { 1.0 },
        final_softcap: None,
        tied_output: true,
        per_layer_embedding: None,
        layer_scale: false,
        experts: None,
        rope_factors: None,
        layers,
        assistant: None,
        eagle: None,
    }
}

fn global_layer() -> Layer {
    Layer {
        window: None,
        heads: HEADS,
        kv_heads: 2,
        head_dim: HEAD_DIM,
        attention_scale: (1.0 / (HEAD_DIM as f64).sqrt()) as f32,
        rope: Rope { base: 10_000.0, dims: HEAD_DIM, scaling: RopeScaling::None, factors: false },
        kv_from: None,
        v_from_k: false,
        ffn: Some(FFN),
    }
}

/// Windowed layers with heads of 32, global ones with heads of 64 of which a quarter rotates.
fn gemma4_layer(windowed: bool) -> Layer {
    let head_dim = if windowed { HEAD_DIM } else { 2 * HEAD_DIM };
    let rope_base = if windowed { 10_000.0 } else { 1_000_000.0 };
    Layer {
        window: windowed.then_some(WINDOW),
        head_dim,
        attention_scale: 1.0,
        rope: Rope { base: rope_base, dims: head_dim, scaling: RopeScaling::None, factors: !windowed },
        ..global_layer()
    }
}

fn gemma4() -> Config {
    Config {
        final_softcap: Some(30.0),
        layer_scale: true,
        rope_factors: Some(RopeFactors::Proportional { rotated: HEAD_DIM / 4, pairs: HEAD_DIM }),
        ..base(Architecture::Gemma4, [true, true, false].map(gemma4_layer).to_vec())
    }
}

/// Reads what [`gemma4`] has in its last two layers.
fn gemma4_assistant() -> Config {
    let layers = [true, true, false].map(gemma4_layer).into_iter().zip([0, 0, 2]);
    Config {
        hidden: HIDDEN / 2,
        final_softcap: None,
        layers: layers.map(|(layer, from)| Layer { kv_from: Some(from), ..layer }).collect(),
        assistant: Some(Assistant {
            target_hidden: HIDDEN,
            centroids: Some(Centroids { count: 20, top_k: 3 }),
        }),
        architecture: Architecture::Gemma4Assistant,
        ..gemma4()
    }
}

/// For any toy of three layers: narrower, of half of the tokens, with an embedding of its own.
fn eagle3() -> Config {
    let eagle = Eagle {
        target_hidden: HIDDEN,
        target_layers: vec![1, 2, 3],
        draft_vocab: 80,
        norm_before_residual: true,
        norm_before_fc: true,
    };
    let hidden = HIDDEN / 2;
    Config {
        hidden,
        tied_output: false,
        eagle: Some(eagle),
        ..base(Architecture::Eagle3, vec![global_layer()])
    }
}

/// One KV head and values from keys in global layers.
fn gemma4_moe() -> Config {
    let mut config = gemma4();
    config.experts =
        Some(Experts { count: 6, top_k: 2, ffn: 32, renormalize: true, packed: true, scaled: true });
    for layer in config.layers.iter_mut().filter(|l| l.window.is_none()) {
        (layer.kv_heads, layer.v_from_k) = (1, true);
    }
    config
}

/// The last two of five layers read earlier keys and values and have a feed-forward network of twice the width.
fn gemma4_per_layer() -> Config {
    let mut layers: Vec<Layer> = [true, false, true, true, false].map(gemma4_layer).to_vec();
    for (i, from) in [(3, 2), (4, 1)] {
        (layers[i].kv_from, layers[i].ffn) = (Some(from), Some(2 * FFN));
    }
    Config { per_layer_embedding: Some(32), layers, ..gemma4() }
}

fn gemma3() -> Config {
    let layer = |windowed: bool| {
        let mut layer = Layer { window: windowed.then_some(WINDOW), ..global_layer() };
        if !windowed {
            (layer.rope.base, layer.rope.scaling) = (1_000_000.0, RopeScaling::Linear { factor: 8.0 });
        }
        layer
    };
    base(Architecture::Gemma3, [true, true, false, true].map(layer).to_vec())
}

fn llama() -> Config {
    Config { tied_output: false, norm_eps: 1e-5, ..base(Architecture::Llama, vec![global_layer(); 2]) }
}

fn llama3() -> Config {
    let mut config = llama();
    for layer in &mut config.layers {
        (layer.rope.base, layer.rope.factors) = (500_000.0, true);
    }
    config.rope_factors = Some(RopeFactors::Llama3 {
        base: 500_000.0,
        dims: HEAD_DIM,
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    });
    config
}

fn yarn() -> RopeScaling {
    RopeScaling::Yarn {
        factor: 4.0,
        attention_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 64,
    }
}

fn scaled(mut config: Config, scaling: RopeScaling) -> Config {
    for layer in &mut config.layers {
        layer.rope.scaling = scaling;
    }
    config
}

fn windowed(mut config: Config) -> Config {
    for layer in &mut config.layers {
        layer.window = Some(WINDOW);
    }
    config
}

fn qwen3() -> Config {
    base(Architecture::Qwen3, vec![global_layer(); 2])
}

fn qwen3_moe() -> Config {
    let layer = Layer { ffn: None, ..global_layer() };
    Config {
        tied_output: false,
        experts: Some(Experts {
            count: 6,
            top_k: 2,
            ffn: 32,
            renormalize: true,
            packed: false,
            scaled: false,
        }),
        ..base(Architecture::Qwen3Moe, vec![layer; 2])
    }
}
