//! Numbers of the reference implementation, and shapes of published models.

use hf2q_arch::{Class, Config, Role, RopeFactors, RopeScaling, Source, TensorRow};

use crate::configs::{self, tiny};

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= 2e-5 * e, "{found:?} is not {expected:?}");
    }
}

fn config(name: &str) -> Config {
    let all = configs::all();
    Config::from_hf(&all.iter().find(|(n, _)| n == name).unwrap().1).unwrap()
}

fn row(config: &Config, name: &str) -> TensorRow {
    config.tensors().into_iter().find(|r| r.gguf == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn llama3_factors_are_those_of_the_reference() {
    let small = Config::from_hf(&tiny("llama3-rope")).unwrap();
    let mut expected = [8.0; 16];
    expected[..3].copy_from_slice(&[1.0, 1.0, 2.442_259_6]);
    close(&small.rope_factors.unwrap().values(), &expected);

    let large = config("llama-3.2-1b");
    let mut expected = [1.0; 32];
    expected[15..18].copy_from_slice(&[1.651_329_2, 3.292_262_6, 9.666_73]);
    expected[18..].fill(32.0);
    close(&large.rope_factors.unwrap().values(), &expected);
}

#[test]
fn a_quarter_of_gemma4s_global_pairs_rotates() {
    let config = config("gemma4-26b-a4b");
    let Source::Computed(values) = row(&config, "rope_freqs.weight").source else { panic!("not computed") };
    assert_eq!(values.len(), 256);
    assert!(values[..64].iter().all(|&x| x == 1.0) && values[64..].iter().all(|&x| x == 1e30));
    assert!(RopeFactors::Stored.values().is_empty());
}

#[test]
fn yarn_raises_the_magnitude() {
    let config = Config::from_hf(&tiny("llama-yarn")).unwrap();
    let scaling = config.layers[0].rope.scaling;
    assert_eq!(scaling.freq_scale(), 0.25);
    close(&[scaling.magnitude()], &[1.138_629_4]);
    assert!(matches!(scaling, RopeScaling::Yarn { original_context: 64, .. }));
}

#[test]
fn gemma4_26b_has_the_published_number_of_tensors_and_parameters() {
    let rows = config("gemma4-26b-a4b").tensors();
    let stored: Vec<&TensorRow> = rows.iter().filter(|r| r.class != Class::Output).collect();
    assert_eq!(stored.len(), 658);
    let elements: usize = stored.iter().map(|r| r.shape.iter().product::<usize>()).sum();
    assert_eq!(elements / 10_000_000, 2523);
}

#[test]
fn e2b_shares_the_last_cache_of_each_kind() {
    let config = config("gemma4-e2b");
    let from: Vec<Option<usize>> = config.layers.iter().map(|l| l.kv_from).collect();
    assert_eq!((from[14], from[15], from[19], from[34]), (None, Some(13), Some(14), Some(14)));
    assert_eq!((config.layers[14].ffn, config.layers[15].ffn), (Some(6144), Some(12288)));
    assert_eq!(row(&config, "per_layer_token_embd.weight").shape, [35 * 256, 262_144]);
    assert!(!config.tensors().iter().any(|r| r.gguf == "blk.15.attn_k.weight"));
    for (name, ignored) in [
        ("model.layers.15.self_attn.k_proj.weight", true),
        ("model.layers.34.self_attn.v_norm.weight", true),
        ("model.layers.14.self_attn.k_proj.weight", false),
        ("model.layers.15.self_attn.q_proj.weight", false),
        ("model.layers.99.self_attn.k_proj.weight", false),
        ("model.layers.3.self_attn.rotary_emb.inv_freq", true),
    ] {
        assert_eq!(config.ignores(name), ignored, "{name}");
    }
}

#[test]
fn roles_of_a_moe_layer() {
    let config = config("gemma4-26b-a4b");
    let class = |name: &str| row(&config, name).class;
    assert_eq!(class("blk.0.ffn_gate_up_exps.weight"), Class::Expert(Role::FfnGateUp));
    assert_eq!(class("blk.0.ffn_gate_inp.weight"), Class::Router);
    assert_eq!(class("blk.0.ffn_gate_inp.scale"), Class::Scalar);
    assert_eq!(class("blk.0.attn_v.weight"), Class::Matrix(Role::AttnV));
    let qwen = self::config("qwen3-30b-a3b");
    let stack = row(&qwen, "blk.3.ffn_down_exps.weight");
    assert_eq!(stack.shape, [768, 2048, 128]);
    assert_eq!(stack.source_names().nth(5), Some("model.layers.3.mlp.experts.5.down_proj.weight"));
}

#[test]
fn every_tensor_of_a_tiny_checkpoint_has_a_row() {
    for name in configs::TINY {
        let path =
            format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny/{}/model.safetensors"), name);
        let shapes = safetensors_shapes(&std::fs::read(path).unwrap());
        let config = Config::from_hf(&tiny(name)).unwrap();
        let mut used = 0;
        for row in config.tensors() {
            for source in row.source_names() {
                let Some(shape) = shapes.iter().find(|(n, _)| canonical(n) == source).map(|(_, s)| s) else {
                    assert!(row.optional, "{name}: {source} is missing");
                    continue;
                };
                used += 1;
                let mut expected: Vec<u64> = row.shape.iter().rev().map(|&d| d as u64).collect();
                if matches!(row.source, Source::Stack { .. }) {
                    expected.remove(0);
                }
                assert_eq!(*shape, expected, "{name}: {source}");
            }
        }
        let text = |n: &&(String, Vec<u64>)| !n.0.contains("vision") && !n.0.contains("multi_modal");
        assert_eq!(used, shapes.iter().filter(text).count(), "{name}");
    }
}

fn canonical(name: &str) -> String {
    let plain = name.replace("model.language_model.", "model.").replace("language_model.model.", "model.");
    plain.replace("language_model.lm_head.", "lm_head.")
}

fn safetensors_shapes(bytes: &[u8]) -> Vec<(String, Vec<u64>)> {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let shape =
        |v: &serde_json::Value| v["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
    tensors.map(|(name, v)| (name.clone(), shape(v))).collect()
}
