//! Descriptions with one damaged entry: an answer or an error, never a panic.

use hf2q_arch::Config;
use hf2q_gguf::{Array, Metadata, Value};
use proptest::prelude::*;
use serde_json::json;

use crate::configs;

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        prop_oneof![Just(0), Just(1), Just(-1), Just(i64::MAX), 0..5000_i64].prop_map(|n| json!(n)),
        any::<f64>().prop_map(|x| json!(x)),
        Just(json!([])),
        Just(json!(["full_attention", 3])),
        Just(json!({"0": {"head_dim": 3}, "x": 1})),
        Just(
            json!({"rope_type": "yarn", "factor": -1.0, "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 7}})
        ),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u32>().prop_map(Value::U32),
        (0..70_u32).prop_map(Value::U32),
        any::<u64>().prop_map(Value::U64),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        "[a-z0-9]{0,6}".prop_map(Value::String),
        prop::collection::vec(any::<u32>(), 0..5).prop_map(|v| Value::Array(Array::U32(v))),
        prop::collection::vec(any::<bool>(), 0..5).prop_map(|v| Value::Array(Array::Bool(v))),
    ]
}

/// What every accepted configuration must allow.
fn use_it(config: &Config) {
    assert!(!config.tensors().is_empty());
    config.to_metadata(&mut Metadata::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn config_json(name in prop::sample::select(configs::TINY), at in any::<prop::sample::Index>(), value in any_json()) {
        let mut json = configs::tiny(name);
        let text = if json.get("text_config").is_some() { &mut json["text_config"] } else { &mut json };
        let keys: Vec<String> = text.as_object().unwrap().keys().cloned().collect();
        text[at.get(&keys)] = value;
        if let Ok(config) = Config::from_hf(&json) {
            use_it(&config);
        }
    }

    #[test]
    fn metadata(
        name in prop::sample::select(configs::TINY),
        at in any::<prop::sample::Index>(),
        value in any_value(),
        has in any::<bool>(),
    ) {
        let mut metadata = Metadata::default();
        Config::from_hf(&configs::tiny(name)).unwrap().to_metadata(&mut metadata);
        let keys: Vec<String> = metadata.iter().map(|(k, _)| k.to_owned()).collect();
        metadata.insert(at.get(&keys).clone(), value);
        if let Ok(config) = Config::from_metadata(&metadata, &|_| has) {
            use_it(&config);
        }
    }
}
