//! Crafted checkpoints that must be refused, or that must not be.

use std::path::Path;

use hf2q_convert::ConvertError;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::support::{root, try_convert};

/// The tiny Llama folder with its tensors changed by `edit`, in one file.
struct Edited {
    dir: tempfile::TempDir,
}

type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

fn edited(edit: impl FnOnce(&mut Vec<Tensor>)) -> Edited {
    edited_of("fixtures/tiny/llama", &["config.json", "tokenizer.json", "tokenizer_config.json"], edit)
}

/// The same of another folder, with some of its other files.
fn edited_of(folder: &str, files: &[&str], edit: impl FnOnce(&mut Vec<Tensor>)) -> Edited {
    let dir = tempfile::tempdir().unwrap();
    let from = root().join(folder);
    for name in files {
        std::fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let mut tensors = owned(&bytes);
    edit(&mut tensors);
    write(&dir.path().join("model.safetensors"), &tensors);
    Edited { dir }
}

fn owned(bytes: &[u8]) -> Vec<Tensor> {
    let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let own = |(name, t): (String, TensorView<'_>)| (name, t.dtype(), t.shape().to_vec(), t.data().to_vec());
    file.tensors().into_iter().map(own).collect()
}

fn write(path: &Path, tensors: &[Tensor]) {
    let views = tensors.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

impl Edited {
    fn convert(&self) -> Result<hf2q_convert::Summary, ConvertError> {
        let out = tempfile::tempdir().unwrap();
        let result = try_convert(self.dir.path(), &out.path().join("out.gguf"), "q8_0");
        let left = std::fs::read_dir(out.path()).unwrap().count();
        assert_eq!(left, usize::from(result.is_ok()), "a refused conversion leaves nothing");
        result
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let message = self.convert().unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
}

#[test]
fn the_copy_itself_converts() {
    edited(|_| ()).convert().unwrap();
}

#[test]
fn a_list_of_tokens_holds_tokens() {
    let with_list = |dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>| {
        edited_of("fixtures/assistant/ordered", &["config.json"], |t| {
            let i = t.iter().position(|t| t.0.ends_with("token_ordering")).unwrap();
            t[i] = (t[i].0.clone(), dtype, shape, bytes);
        })
    };
    let long = |tokens: &[i64]| tokens.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<u8>>();
    let mut tokens: Vec<i64> = (0..384).rev().collect();
    with_list(Dtype::I64, vec![384], long(&tokens)).convert().unwrap();
    let short = tokens.iter().flat_map(|&t| (t as i32).to_le_bytes()).collect();
    with_list(Dtype::I32, vec![384], short).convert().unwrap();
    let floats = tokens.iter().flat_map(|&t| (t as f32).to_le_bytes()).collect();
    with_list(Dtype::F32, vec![384], floats).refused(&["token_ordering", "dtype F32", "I32 and I64"]);
    with_list(Dtype::I64, vec![24, 16], long(&tokens)).refused(&["token_ordering", "[24, 16]", "[384]"]);
    for wrong in [-1, 384, i64::MAX] {
        tokens[7] = wrong;
        let folder = with_list(Dtype::I64, vec![384], long(&tokens));
        folder.refused(&["token_ordering", &format!("lists {wrong} at place 7"), "below 384"]);
    }
}

#[test]
fn empty_tensors_do_no_harm() {
    let folder = edited(|t| {
        t.push(("extra.a".to_owned(), Dtype::F32, vec![0], Vec::new()));
        t.push(("extra.b".to_owned(), Dtype::BF16, vec![0, 5], Vec::new()));
    });
    folder.convert().unwrap();
}

#[test]
fn eight_bit_floats_are_refused_by_name() {
    for dtype in [Dtype::F8_E4M3, Dtype::F8_E5M2] {
        let folder = edited(|t| {
            let i = t.iter().position(|t| t.0.ends_with("0.mlp.up_proj.weight")).unwrap();
            let n = t[i].2.iter().product();
            t[i] = (t[i].0.clone(), dtype, t[i].2.clone(), vec![0x38; n]);
        });
        folder.refused(&["mlp.up_proj.weight", &format!("{dtype:?}")]);
    }
}

/// The tiny Qwen 3 folder ties its output to the embedding; `edit` makes an output of the embedding's bytes.
fn tied_with_output(edit: impl FnOnce(&mut Vec<u8>)) -> (hf2q_convert::Summary, bool) {
    let dir = tempfile::tempdir().unwrap();
    let from = root().join("fixtures/tiny/qwen3");
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let mut tensors = owned(&bytes);
    let mut output = tensors.iter().find(|t| t.0 == "model.embed_tokens.weight").unwrap().clone();
    output.0 = "lm_head.weight".to_owned();
    edit(&mut output.3);
    tensors.push(output);
    write(&dir.path().join("model.safetensors"), &tensors);
    let path = dir.path().join("out.gguf");
    let summary = try_convert(dir.path(), &path, "q8_0").unwrap();
    let stored = hf2q_gguf::Gguf::open(&path).unwrap().tensor("output.weight").is_some();
    (summary, stored)
}

#[test]
fn a_tied_output_is_stored_once_and_one_that_differs_is_kept() {
    let (summary, stored) = tied_with_output(|_| ());
    assert!(!stored && summary.warnings.is_empty(), "{:?}", summary.warnings);
    let (summary, stored) = tied_with_output(|bytes| bytes[0] ^= 1);
    assert!(stored && summary.warnings[0].contains("output.weight differs"), "{:?}", summary.warnings);
}

#[test]
fn a_missing_tensor_is_named() {
    let folder = edited(|t| t.retain(|t| !t.0.ends_with("1.self_attn.k_proj.weight")));
    folder.refused(&["lacks 1 tensors", "model.layers.1.self_attn.k_proj.weight"]);
}

#[test]
fn a_tensor_that_nothing_uses_is_named() {
    let folder =
        edited(|t| t.push(("model.layers.0.self_attn.q_proj.bias".into(), Dtype::F32, vec![1], vec![0; 4])));
    folder.refused(&["would be lost", "q_proj.bias"]);
}

#[test]
fn a_nan_weight_is_refused_when_quantized() {
    let folder = edited(|t| {
        let tensor = t.iter_mut().find(|t| t.0.ends_with("0.mlp.up_proj.weight")).unwrap();
        let nan = if tensor.1 == Dtype::F32 { f32::NAN.to_le_bytes().to_vec() } else { vec![0xc0, 0x7f] };
        tensor.3[..nan.len()].copy_from_slice(&nan);
    });
    folder.refused(&["blk.0.ffn_up.weight"]);
}

#[test]
fn the_same_tensor_in_two_shards_is_refused_with_both_names() {
    let folder = edited(|_| ());
    let path = folder.dir.path();
    std::fs::rename(path.join("model.safetensors"), path.join("a.safetensors")).unwrap();
    let embedding = ("model.embed_tokens.weight".to_owned(), Dtype::F32, vec![1], vec![0; 4]);
    write(&path.join("b.safetensors"), &[embedding, ("x".to_owned(), Dtype::F32, vec![1], vec![0; 4])]);
    let index = r#"{"weight_map": {"model.embed_tokens.weight": "a.safetensors", "x": "b.safetensors"}}"#;
    std::fs::write(path.join("model.safetensors.index.json"), index).unwrap();
    folder.refused(&["model.embed_tokens.weight", "a.safetensors", "b.safetensors"]);
}

#[test]
fn a_header_that_lies_is_refused() {
    let folder = edited(|_| ());
    let path = folder.dir.path().join("model.safetensors");
    for bytes in [&b""[..], b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", b"\x02\0\0\0\0\0\0\0{]", b"\x08\0\0\0"] {
        std::fs::write(&path, bytes).unwrap();
        folder.refused(&["model.safetensors"]);
    }
}

#[test]
fn a_pre_tokenizer_without_steps_is_refused() {
    let copy = edited(|_| {});
    let path = copy.dir.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    json["pre_tokenizer"]["pretokenizers"] = serde_json::json!([]);
    std::fs::write(&path, json.to_string()).unwrap();
    copy.refused(&["tokenizer.json", "pre_tokenizer", "byte-level"]);
}

#[test]
fn two_tokens_with_one_id_are_refused() {
    let copy = edited(|_| {});
    let path = copy.dir.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    json["model"]["vocab"]["another"] = serde_json::json!(5);
    std::fs::write(&path, json.to_string()).unwrap();
    copy.refused(&["tokenizer.json", "id 5 of two tokens", "\"another\""]);
}
