//! EAGLE-3 heads: with their target and without.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hf2q_convert::{ConvertError, Options, Plan, Recipe, Source};
use hf2q_gguf::{Array, Gguf, TensorType, Value};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::support::{Silent, convert, root};

fn demo(name: &str) -> PathBuf {
    root().join("models/demo").join(name)
}

/// The demo's head in a folder of its own, with changes to its configuration and further tensors.
fn head(dir: &Path, change: impl Fn(&mut serde_json::Value), more: &[(&str, Vec<i64>)]) -> PathBuf {
    let folder = dir.join("head");
    std::fs::create_dir_all(&folder).unwrap();
    let json = std::fs::read(demo("eagle3-tiny-moe").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&json).unwrap();
    change(&mut config);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let bytes = std::fs::read(demo("eagle3-tiny-moe").join("model.safetensors")).unwrap();
    let stored = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<String, TensorView<'_>> =
        stored.iter().map(|(name, view)| (name.replace("midlayer.", "layers.0."), view)).collect();
    let lists: Vec<(&str, Vec<u8>, usize)> = more
        .iter()
        .map(|(name, list)| (*name, list.iter().flat_map(|x| x.to_le_bytes()).collect(), list.len()))
        .collect();
    for (name, bytes, len) in &lists {
        let view = TensorView::new(Dtype::I64, vec![*len], bytes).unwrap();
        tensors.insert((*name).to_owned(), view);
    }
    let small = config["draft_vocab_size"].as_u64().unwrap() as usize;
    let output = stored.tensor("lm_head.weight").unwrap();
    let rows = &output.data()[..small * 256 * 2];
    tensors
        .insert("lm_head.weight".to_owned(), TensorView::new(Dtype::BF16, vec![small, 256], rows).unwrap());
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
    folder
}

fn joined(head: &Path, target: &Path, dir: &Path) -> Result<(Gguf, Vec<String>), ConvertError> {
    let output = dir.join("head.gguf");
    let source = Source::open_drafter(head, target)?;
    let plan = Plan::new(&source, Options::new(Recipe::from_name("q8_0").unwrap()))?;
    let summary = plan.write(&output, &mut Silent::default())?;
    Ok((Gguf::open(&output).unwrap(), summary.warnings))
}

fn layers(gguf: &Gguf) -> Vec<u32> {
    match gguf.metadata().get("eagle3.target_layers") {
        Some(Value::Array(Array::U32(layers))) => layers.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_head_gets_its_targets_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let (_dir, target, _) = convert(&demo("tiny-moe"), "q8_0");
    let file = target.paths()[0].clone();
    let (alone, lonely, _) = convert(&demo("eagle3-tiny-moe"), "q8_0");
    assert!(lonely.metadata().get("tokenizer.ggml.model").is_none());
    drop(alone);
    for target_path in [demo("tiny-moe"), file] {
        let (gguf, warnings) = joined(&demo("eagle3-tiny-moe"), &target_path, dir.path()).unwrap();
        for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id"] {
            assert_eq!(gguf.metadata().get(key), target.metadata().get(key), "{key}");
        }
        assert_eq!(layers(&gguf), [2, 4, 6]);
        assert_eq!(warnings, ["the head reads the inputs of layers [2, 4, 6] of its target, counted from 0"]);
        assert_eq!(gguf.tensor("fc.weight").unwrap().shape, [768, 256]);
        assert_eq!(gguf.tensor("blk.0.attn_q.weight").unwrap().shape, [512, 256]);
    }
}

#[test]
fn layers_that_are_not_named_are_the_usual_ones_of_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let silent = |config: &mut serde_json::Value| {
        config["eagle_config"] = json!(null);
        config["aux_hidden_state_layers"] = json!(null);
    };
    let folder = head(dir.path(), silent, &[]);
    let error = Source::open(&folder).unwrap_err().to_string();
    assert!(error.contains("eagle_config.eagle_aux_hidden_state_layer_ids is missing"), "{error}");
    let (gguf, warnings) = joined(&folder, &demo("tiny-moe"), dir.path()).unwrap();
    // The target has six.
    assert_eq!(layers(&gguf), [2, 3, 3]);
    assert!(warnings[0].contains("has no eagle_aux_hidden_state_layer_ids"), "{warnings:?}");
}

#[test]
fn lists_of_fewer_tokens_become_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let few = |config: &mut serde_json::Value| config["draft_vocab_size"] = json!(4);
    let t2d = ("t2d", vec![0; 4096]);
    // Values are how much a token is larger than its place.
    let folder = head(dir.path(), few, &[("d2t", vec![7, 8, 4000, 4092]), t2d.clone()]);
    let (gguf, _) = joined(&folder, &demo("tiny-moe"), dir.path()).unwrap();
    let list = gguf.tensor("d2t").unwrap();
    let tokens: Vec<i64> = gguf.data(list).as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect();
    assert_eq!((list.ty, tokens.as_slice()), (TensorType::I64, &[7, 9, 4002, 4095][..]));
    assert_eq!(gguf.tensor("output.weight").unwrap().shape, [256, 4]);
    assert_eq!(gguf.metadata().u64("eagle3.draft_vocab_size").unwrap(), 4);
    for (list, expected) in [
        (vec![7, 6, 0, 0], "lists token 7 twice, at place 1"),
        (vec![0, 0, 0, 4093], "lists 4093 at place 3"),
        (vec![-1, 0, 0, 0], "lists -1 at place 0"),
        (vec![0, 0, 0], "has shape [3]"),
    ] {
        let folder = head(dir.path(), few, &[("d2t", list), t2d.clone()]);
        let error = joined(&folder, &demo("tiny-moe"), dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn heads_of_other_models_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let of = |key: &'static str, value: u64| {
        let folder = head(dir.path(), |config| config[key] = json!(value), &[]);
        joined(&folder, &demo("tiny-moe"), dir.path()).unwrap_err().to_string()
    };
    assert!(
        of("target_hidden_size", 512).contains("its hidden size of the target is 512, the model's is 256")
    );
    assert!(of("vocab_size", 5000).contains("its vocabulary is 5000, the model's is 4096"));
    let folder = head(dir.path(), |_| {}, &[]);
    let tokenizer = std::fs::read_to_string(demo("tiny-moe").join("tokenizer.json")).unwrap();
    std::fs::write(folder.join("tokenizer.json"), &tokenizer).unwrap();
    joined(&folder, &demo("tiny-moe"), dir.path()).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    let (vocabulary, mut swapped) = (other["model"]["vocab"].as_object_mut().unwrap(), Vec::new());
    for (token, id) in vocabulary.iter_mut().filter(|(_, id)| [1000, 1001].contains(&id.as_u64().unwrap())) {
        *id = json!(2001 - id.as_u64().unwrap());
        swapped.push(token.clone());
    }
    std::fs::write(folder.join("tokenizer.json"), other.to_string()).unwrap();
    let error = joined(&folder, &demo("tiny-moe"), dir.path()).unwrap_err().to_string();
    assert!(swapped.len() == 2 && error.contains("its token 1000 is"), "{error}");
    let error = joined(&demo("tiny-dense"), &demo("tiny-moe"), dir.path()).unwrap_err().to_string();
    assert!(error.contains("is a gemma4 model, and"), "{error}");
    assert!(
        error.contains("only checkpoint folders of drafters (gemma4-assistant, eagle3) have one"),
        "{error}"
    );
}
