//! Metadata and configuration, there and back.

use std::collections::HashSet;

use hf2q_arch::{Architecture, Config, RopeFactors};
use hf2q_gguf::{Array, Metadata, Value};
use serde_json::json;

use crate::configs;

/// Reads back what a file of `config` would hold.
fn reread(config: &Config) -> Config {
    let mut metadata = Metadata::default();
    config.to_metadata(&mut metadata);
    let names = stored(config);
    Config::from_metadata(&metadata, &|name| names.contains(name)).unwrap()
}

fn stored(config: &Config) -> HashSet<String> {
    let rows = config.tensors().into_iter();
    rows.filter(|r| r.gguf != "output.weight" || !config.tied_output).map(|r| r.gguf).collect()
}

/// What the published configurations do not have.
fn unusual() -> Vec<(String, serde_json::Value)> {
    let types = |layers: &[&str]| json!(layers.iter().map(|k| format!("{k}_attention")).collect::<Vec<_>>());
    let pattern = types(&["sliding", "full", "sliding", "full", "sliding", "sliding", "full"]);
    let global = types(&["full"; 7]);
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.25, "beta_fast": 16, "beta_slow": 2});
    let overrides = json!({"2": {"head_dim": 128, "num_key_value_heads": 1}});
    let variants = [
        ("gemma3", "layer_types", pattern),
        ("gemma3", "layer_types", global),
        ("gemma3", "query_pre_attn_scalar", json!(32)),
        ("gemma3", "rope_scaling", yarn.clone()),
        ("gemma3", "final_logit_softcapping", json!(20.0)),
        ("gemma4-dense", "per_layer_config", overrides),
        ("gemma4-dense", "final_logit_softcapping", json!(null)),
        ("gemma4-dense", "tie_word_embeddings", json!(false)),
        ("llama", "rope_scaling", yarn),
        ("llama", "sliding_window", json!(100)),
        ("qwen3-moe", "norm_topk_prob", json!(false)),
    ];
    let json = |(name, key, value)| {
        (format!("{name} with {key}"), configs::with(configs::tiny(name), &[(key, value)]))
    };
    variants.into_iter().map(json).collect()
}

#[test]
fn a_configuration_survives_the_metadata() {
    for (name, json) in configs::all().into_iter().chain(unusual()) {
        let mut config = Config::from_hf(&json).unwrap();
        let read = reread(&config);
        // The values of the factors are in a tensor.
        config.rope_factors = config.rope_factors.map(|_| RopeFactors::Stored);
        assert_eq!(read, config, "{name}");
    }
}

/// Keys of a small Gemma 3 file as llama.cpp's converter wrote it.
fn gemma3_270m() -> Metadata {
    let mut m = Metadata::default();
    m.insert("general.architecture", Value::String("gemma3".to_owned()));
    let sizes = [
        ("context_length", 32768),
        ("embedding_length", 640),
        ("block_count", 18),
        ("feed_forward_length", 2048),
        ("attention.head_count", 4),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("attention.sliding_window", 512),
        ("attention.head_count_kv", 1),
    ];
    for (key, value) in sizes {
        m.insert(format!("gemma3.{key}"), Value::U32(value));
    }
    m.insert("gemma3.attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    m.insert("gemma3.rope.freq_base", Value::F32(1e6));
    let tokens = (0..262_144).map(|i| i.to_string()).collect();
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m
}

fn has_no_output(name: &str) -> bool {
    name != "output.weight"
}

#[test]
fn what_a_gemma3_file_leaves_open() {
    let config = Config::from_metadata(&gemma3_270m(), &has_no_output).unwrap();
    assert_eq!((config.vocab, config.tied_output), (262_144, true));
    let windowed: Vec<usize> = (0..18).filter(|&i| config.layers[i].window == Some(512)).collect();
    assert_eq!(windowed, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16]);
    assert_eq!((config.layers[0].rope.base, config.layers[5].rope.base), (1e4, 1e6));
    assert_eq!(config.layers[0].attention_scale, 1.0 / 16.0);
}

#[test]
fn gemma3_27b_scales_by_the_hidden_size_per_head() {
    let mut m = gemma3_270m();
    for (key, value) in [("block_count", 62), ("embedding_length", 5376), ("attention.head_count", 32)] {
        m.insert(format!("gemma3.{key}"), Value::U32(value));
    }
    let config = Config::from_metadata(&m, &has_no_output).unwrap();
    assert_eq!(config.layers[0].attention_scale, (1.0 / 168_f64.sqrt()) as f32);
}

#[test]
fn a_pattern_may_be_a_period_or_an_array() {
    const KEY: &str = "gemma3.attention.sliding_window_pattern";
    let globals = |pattern: Value| {
        let mut m = gemma3_270m();
        m.insert(KEY, pattern);
        let config = Config::from_metadata(&m, &has_no_output).unwrap();
        (0..18).filter(|&i| config.layers[i].window.is_none()).collect::<Vec<_>>()
    };
    assert_eq!(globals(Value::U32(9)), [8, 17]);
    let flags: Vec<bool> = (0..18).map(|i| i != 3).collect();
    assert_eq!(globals(Value::Array(Array::Bool(flags.clone()))), [3]);
    assert_eq!(globals(Value::Array(Array::I32(flags.iter().map(|&f| f.into()).collect()))), [3]);
}

#[test]
fn old_llama_files_scale_by_another_key() {
    let config = Config::from_hf(&configs::tiny("llama-linear")).unwrap();
    let mut m = Metadata::default();
    config.to_metadata(&mut m);
    m.remove("llama.rope.scaling.type");
    m.remove("llama.rope.scaling.factor");
    m.insert("llama.rope.scale_linear", Value::F32(4.0));
    let read = Config::from_metadata(&m, &|_| false).unwrap();
    assert_eq!(read.layers[0].rope, config.layers[0].rope);
}

#[test]
fn tensors_tell_what_gemma4_metadata_leave_open() {
    let config = Config::from_hf(&configs::tiny("gemma4-moe")).unwrap();
    let mut m = Metadata::default();
    config.to_metadata(&mut m);
    let read =
        Config::from_metadata(&m, &|name| !name.ends_with("_exps.scale") && name != "blk.2.attn_v.weight")
            .unwrap();
    let experts = read.experts.as_ref().unwrap();
    assert_eq!((experts.packed, experts.scaled, read.tied_output), (false, false, false));
    assert_eq!(read.layers.iter().map(|l| l.v_from_k).collect::<Vec<_>>(), [false, false, true]);
    // A windowed layer without V is damaged, not special.
    let read = Config::from_metadata(&m, &|_| false).unwrap();
    assert!(!read.layers[0].v_from_k);
    let names: Vec<String> = read.tensors().into_iter().map(|r| r.gguf).collect();
    assert!(names.contains(&"blk.0.attn_v.weight".to_owned()));
}

#[test]
fn bad_metadata_is_refused_by_key() {
    let refused = |key: &str, value: Option<Value>, expected: &str| {
        let mut m = gemma3_270m();
        match value {
            Some(value) => drop(m.insert(key, value)),
            None => drop(m.remove(key)),
        }
        let message = Config::from_metadata(&m, &has_no_output).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains(expected), "{message}");
    };
    refused(
        "general.architecture",
        Some(Value::String("bert".to_owned())),
        "gemma4, gemma3, llama, qwen3, qwen3moe",
    );
    refused("general.architecture", None, "missing");
    refused("gemma3.block_count", None, "missing");
    refused("gemma3.block_count", Some(Value::U32(4_000_000_000)), "at most");
    refused("gemma3.block_count", Some(Value::U32(100_000)), "at most 1024");
    refused("gemma3.attention.head_count", None, "missing");
    refused("gemma3.feed_forward_length", None, "missing");
    refused("gemma3.attention.head_count", Some(Value::Array(Array::U32(vec![4; 3]))), "an array of 3");
    refused("gemma3.attention.value_length", Some(Value::U32(128)), "the length of the keys, 256");
    let longrope = Value::String("longrope".to_owned());
    refused("gemma3.rope.scaling.type", Some(longrope), "none, linear or yarn");
    refused("gemma3.attention.causal", Some(Value::Bool(false)), "true");
    refused("gemma3.attn_logit_softcapping", Some(Value::F32(50.0)), "absent");
    refused("gemma3.expert_count", Some(Value::U32(8)), "absent");
}

#[test]
fn experts_of_gemma4_do_not_replace_its_dense_network() {
    const KEY: &str = "gemma4.feed_forward_length";
    let config = Config::from_hf(&configs::tiny("gemma4-moe")).unwrap();
    let mut metadata = Metadata::default();
    config.to_metadata(&mut metadata);
    assert!(metadata.remove(KEY).is_some());
    let names = stored(&config);
    let refused = Config::from_metadata(&metadata, &|name| names.contains(name)).unwrap_err();
    assert!(refused.to_string().contains(&format!("{KEY} is missing")), "{refused}");
}

#[test]
fn architecture_names_are_unique() {
    for a in Architecture::ALL {
        assert_eq!(Architecture::from_name(a.name()), Some(a));
    }
}
