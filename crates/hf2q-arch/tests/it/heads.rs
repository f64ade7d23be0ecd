//! EAGLE-3 heads: which layers of their target they read, however their files count them, and what is refused.

use hf2q_arch::{Architecture, Config, Eagle};
use serde_json::{Value, json};

use crate::configs::{head, speculator, with};

fn eagle(json: &Value) -> Eagle {
    let config = Config::from_hf(json).unwrap();
    assert_eq!(config.architecture, Architecture::Eagle3);
    config.eagle.unwrap()
}

/// The demo's head with these lists of layers, without the exact one.
fn listed(inner: Value, top: Value) -> Value {
    let config = json!({ "use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": inner });
    let changes = [
        ("eagle_config", config),
        ("eagle_aux_hidden_state_layer_ids", top),
        ("aux_hidden_state_layers", Value::Null),
    ];
    with(head(), &changes)
}

#[test]
fn layers_are_those_whose_inputs_are_read() {
    let layers = |inner, top| eagle(&listed(inner, top)).target_layers;
    assert_eq!(eagle(&head()).target_layers, [2, 4, 6]);
    assert_eq!(eagle(&speculator()).target_layers, [2, 18, 33]);
    assert_eq!(layers(json!([2, 4, 6]), json!(null)), [2, 4, 6]);
    assert_eq!(layers(json!([1, 29, 57]), json!(null)), [2, 30, 58]);
    assert_eq!(layers(json!(null), json!([24, 30, 36])), [24, 30, 36]);
    assert_eq!(layers(json!(null), json!([1, 46, 90])), [2, 47, 91]);
    assert_eq!(layers(json!(null), json!(null)), [0; 0]);
    assert_eq!(Eagle::usual_layers(8), [2, 4, 5]);
}

#[test]
fn a_head_may_be_narrower_than_its_target_and_know_fewer_tokens() {
    let config = Config::from_hf(&speculator()).unwrap();
    let eagle = config.eagle.as_ref().unwrap();
    assert_eq!((eagle.target_hidden, eagle.features(), eagle.draft_vocab), (4096, 3 * 4096, 32000));
    let shapes: Vec<(String, Vec<usize>)> = config.tensors().into_iter().map(|r| (r.gguf, r.shape)).collect();
    for (name, shape) in [
        ("fc.weight", vec![3 * 4096, 2048]),
        ("d2t", vec![32000]),
        ("output.weight", vec![2048, 32000]),
        ("token_embd.weight", vec![2048, 151_936]),
        ("blk.0.attn_k.weight", vec![2 * 2048, 8 * 128]),
    ] {
        assert!(shapes.contains(&(name.to_owned(), shape)), "{name}");
    }
    assert!(config.ignores("t2d") && !config.ignores("d2t"));
}

#[test]
fn what_no_head_is_is_refused_by_key() {
    let layer = |key: &str, value: Value| {
        let layer = speculator()["transformer_layer_config"].clone();
        with(speculator(), &[("transformer_layer_config", with(layer, &[(key, value)]))])
    };
    for (key, json) in [
        ("num_hidden_layers is 2; accepted is 1", layer("num_hidden_layers", json!(2))),
        ("attention_bias", layer("attention_bias", json!(true))),
        ("norm_output", with(speculator(), &[("norm_output", json!(true))])),
        ("norm_before_residual is missing", with(speculator(), &[("norm_before_residual", json!(null))])),
        ("draft vocabulary", with(speculator(), &[("draft_vocab_size", json!(151_937))])),
        (
            "layers of the target",
            with(speculator(), &[("eagle_aux_hidden_state_layer_ids", json!([5, 3000]))]),
        ),
        ("eagle_aux_hidden_state_layer_ids is \"low\"", listed(json!("low"), json!(null))),
        (
            "eagle_aux_hidden_state_layer_ids is the inputs of layers [3, 4, 6]",
            with(head(), &[("eagle_config", json!({"eagle_aux_hidden_state_layer_ids": [3, 4, 6]}))]),
        ),
        ("embedding_scale", with(head(), &[("eagle_config", json!({"embedding_scale": 16.0}))])),
        ("use_aux_hidden_state", with(head(), &[("eagle_config", json!({"use_aux_hidden_state": false}))])),
        ("eagle_config.layers", with(head(), &[("eagle_config", json!({"layers": 3}))])),
    ] {
        let error = Config::from_hf(&json).unwrap_err().to_string();
        assert!(error.contains(key), "{key}: {error}");
    }
}
