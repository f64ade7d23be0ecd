//! Configurations to test with: the tiny checkpoints, and the published models as far as their hyperparameters are known.

use serde_json::{Value, json};

/// Names of the tiny checkpoints.
pub(crate) const TINY: &[&str] = &[
    "gemma3",
    "gemma3-nested",
    "gemma4-dense",
    "gemma4-moe",
    "gemma4-nested",
    "gemma4-ple",
    "gemma4-shared",
    "llama",
    "llama-linear",
    "llama-yarn",
    "llama3-rope",
    "qwen3",
    "qwen3-moe",
];

/// `config.json` of a tiny checkpoint.
pub(crate) fn tiny(name: &str) -> Value {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny/{}/config.json"), name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// `config.json` of a tiny assistant.
pub(crate) fn assistant(name: &str) -> Value {
    tiny(&format!("../assistant/{name}"))
}

/// All configurations, by name.
pub(crate) fn all() -> Vec<(String, Value)> {
    let assistants =
        ["dense", "unified", "ordered"].map(|name| (format!("assistant-{name}"), assistant(name)));
    let tiny = TINY.iter().map(|&name| (format!("tiny-{name}"), tiny(name))).chain(assistants);
    let published = [
        ("gemma4-26b-a4b", gemma4_26b()),
        ("gemma4-e2b", gemma4_e2b()),
        ("gemma3-4b", gemma3_4b()),
        ("llama-3.2-1b", llama32_1b()),
        ("mistral-7b-v0.1", mistral()),
        ("smollm2-135m", smollm2()),
        ("qwen3-30b-a3b", qwen3_30b()),
        ("eagle3-tiny-moe", head()),
        ("eagle3-speculator", speculator()),
    ];
    tiny.chain(published.into_iter().map(|(name, json)| (name.to_owned(), json))).collect()
}

/// `config.json` of the head of the demo model.
pub(crate) fn head() -> Value {
    tiny("../../models/demo/eagle3-tiny-moe")
}

/// A head as the `speculators` library writes it, of fewer tokens and narrower than its target.
pub(crate) fn speculator() -> Value {
    json!({
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": 32000,
        "eagle_aux_hidden_state_layer_ids": [2, 18, 33],
        "norm_before_residual": true,
        "speculators_config": { "algorithm": "eagle3" },
        "speculators_model_type": "eagle3",
        "target_hidden_size": 4096,
        "torch_dtype": "bfloat16",
        "transformer_layer_config": {
            "attention_bias": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 6144, "max_position_embeddings": 40960, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 1, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
            "rope_theta": 1000000.0, "vocab_size": 151936
        }
    })
}

/// The value with some keys replaced; `null` stays in.
pub(crate) fn with(mut base: Value, changes: &[(&str, Value)]) -> Value {
    for (key, value) in changes {
        base.as_object_mut().unwrap().insert((*key).to_owned(), value.clone());
    }
    base
}

fn gemma4_26b() -> Value {
    json!({
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 2816, "intermediate_size": 2112,
            "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
            "head_dim": 256, "global_head_dim": 512, "attention_k_eq_v": true, "sliding_window": 1024,
            "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
            "max_position_embeddings": 262144, "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": null,
            "use_bidirectional_attention": "vision"
        }
    })
}

fn gemma4_e2b() -> Value {
    let types: Vec<&str> =
        (0..35).map(|i| if i % 5 == 4 { "full_attention" } else { "sliding_attention" }).collect();
    json!({
        "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "num_kv_shared_layers": 20,
        "use_double_wide_mlp": true, "layer_types": types, "sliding_window": 512, "final_logit_softcapping": 30.0
    })
}

fn gemma3_4b() -> Value {
    json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256,
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024
        },
        "vision_config": {"hidden_size": 1152}
    })
}

fn llama32_1b() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256
    })
}

fn mistral() -> Value {
    json!({
        "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
        "tie_word_embeddings": false, "vocab_size": 32000
    })
}

fn smollm2() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu",
        "hidden_size": 576, "initializer_range": 0.041, "intermediate_size": 1536, "is_llama_config": true,
        "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
        "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false,
        "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true,
        "transformers.js_config": {"dtype": "q4"}, "vocab_size": 49152
    })
}

fn qwen3_30b() -> Value {
    json!({
        "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
        "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
        "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936
    })
}
