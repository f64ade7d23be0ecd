//! What `config.json` may not say, and how it is told.

use hf2q_arch::Config;
use serde_json::{Value, json};

use crate::configs::{assistant, tiny, with};

fn message(config: &Value) -> String {
    match Config::from_hf(config) {
        Ok(config) => panic!("accepted as {config:?}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn what_is_not_implemented_is_refused_by_key() {
    let cases = [
        ("llama", "attention_bias", json!(true)),
        ("llama", "mlp_bias", json!(true)),
        ("llama", "rope_interleaved", json!(true)),
        ("llama", "hidden_act", json!("gelu")),
        ("llama", "num_local_experts", json!(8)),
        ("llama", "partial_rotary_factor", json!(0.5)),
        ("llama", "rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0})),
        ("llama", "rope_scaling", json!({"rope_type": "yarn", "factor": 2.0, "mscale": 1.0})),
        ("llama", "rope_scaling", json!({"rope_type": "yarn", "factor": 2.0, "truncate": false})),
        ("llama", "rope_scaling", json!({"rope_type": "yarn"})),
        ("llama", "rope_scaling", json!({"rope_type": "linear", "factor": 2.0, "surprise": 7})),
        (
            "llama3-rope",
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}),
        ),
        ("qwen3", "use_sliding_window", json!(true)),
        ("qwen3", "layer_types", json!(["sliding_attention", "full_attention", "full_attention"])),
        ("qwen3-moe", "mlp_only_layers", json!([1])),
        ("qwen3-moe", "decoder_sparse_step", json!(2)),
        ("gemma3", "use_bidirectional_attention", json!(true)),
        ("gemma3", "attn_logit_softcapping", json!(50.0)),
        ("gemma3", "hidden_activation", json!("relu")),
        ("gemma4-dense", "use_bidirectional_attention", json!("all")),
        ("gemma4-ple", "vocab_size_per_layer_input", json!(100)),
        ("gemma4-ple", "num_kv_shared_layers", json!(5)),
        ("gemma4-dense", "layer_types", json!(["sliding_attention"])),
        (
            "gemma4-dense",
            "rope_parameters",
            json!({"sliding_attention": {"rope_type": "linear", "factor": 2.0}}),
        ),
    ];
    for (name, key, value) in cases {
        let found = message(&with(tiny(name), &[(key, value.clone())]));
        assert!(found.contains(key) && found.starts_with("config.json: "), "{name} {key} {value}: {found}");
    }
}

#[test]
fn what_no_assistant_is_is_refused_by_key() {
    let inner = |key: &str, value: Value| {
        let base = assistant("dense");
        let text = with(base["text_config"].clone(), &[(key, value)]);
        with(base, &[("text_config", text)])
    };
    for (key, config) in [
        ("num_kv_shared_layers", inner("num_kv_shared_layers", json!(1))),
        ("hidden_size_per_layer_input", {
            let with_rows = inner("vocab_size_per_layer_input", json!(384));
            let text = with(with_rows["text_config"].clone(), &[("hidden_size_per_layer_input", json!(8))]);
            with(with_rows, &[("text_config", text)])
        }),
        ("use_double_wide_mlp", inner("use_double_wide_mlp", json!(true))),
        ("hidden size of the target", with(assistant("dense"), &[("backbone_hidden_size", json!(0))])),
        ("number of centroids", with(assistant("ordered"), &[("num_centroids", json!(25))])),
        ("chosen centroids", with(assistant("ordered"), &[("centroid_intermediate_top_k", json!(25))])),
    ] {
        let found = message(&config);
        assert!(found.contains(key) && found.starts_with("config.json: "), "{key}: {found}");
    }
}

#[test]
fn unknown_keys_are_refused_unless_they_say_nothing() {
    let base = tiny("llama");
    let found =
        message(&with(base.clone(), &[("use_mirror_attention", json!(true)), ("residual_gain", json!(0.5))]));
    assert!(
        found.contains("use_mirror_attention = true") && found.contains("residual_gain = 0.5"),
        "{found}"
    );
    let nothing =
        [("a", json!(null)), ("b", json!(false)), ("c", json!(0)), ("d", json!("")), ("e", json!([]))];
    let harmless =
        [("_name_or_path", json!("x")), ("torch_dtype", json!("float16")), ("sep_token_id", json!(5))];
    Config::from_hf(&with(with(base, &nothing), &harmless)).unwrap();
}

#[test]
fn malformed_values_are_refused_by_key() {
    for (key, value) in [
        ("hidden_size", json!(null)),
        ("hidden_size", json!("64")),
        ("hidden_size", json!(-64)),
        ("hidden_size", json!(1e300)),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!(1_000_000)),
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(3)),
        ("num_key_value_heads", json!(0)),
        ("head_dim", json!(31)),
        ("rms_norm_eps", json!(-1.0)),
        ("rope_theta", json!(0)),
        ("tie_word_embeddings", json!("yes")),
        ("model_type", json!("gpt2")),
    ] {
        message(&with(tiny("llama"), &[(key, value)]));
    }
    for not_an_object in [json!(null), json!([1]), json!("x")] {
        assert!(message(&not_an_object).contains("an object"));
    }
    let found = message(&json!({"model_type": "bert"}));
    assert!(found.contains("bert") && found.contains("gemma4_text"), "{found}");
}
