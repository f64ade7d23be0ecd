//! Whole files against `llama-quantize`: the types and bytes of every tensor, with and without importance.

use std::collections::BTreeMap;
use std::path::Path;

use hf2q_convert::{Importance, Options, Recipe, place};
use hf2q_gguf::{Array, Gguf, GgufBuilder, TensorInfo, TensorType, Value};
use serde_json::Value as Json;

use crate::support::{Silent, convert, root};

/// CRC-32 as zip files have it.
fn crc(bytes: &[u8]) -> String {
    let byte = |i: u32| (0..8).fold(i, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 });
    let table: Vec<u32> = (0..256).map(byte).collect();
    let sum = bytes.iter().fold(!0_u32, |c, &b| table[((c ^ u32::from(b)) & 255) as usize] ^ (c >> 8));
    format!("{:08x}", !sum)
}

/// The importance matrix that the goldens were made with: all weights but one, the second matrix of stacks never used.
fn importance(model: &Gguf, recipe: &str, path: &Path) -> Importance {
    const CHUNKS: &str = "imatrix.chunk_count";
    let missing = if recipe == "q2_k_s" { "" } else { "blk.2.attn_output.weight" };
    let mut file = GgufBuilder::new()
        .key("general.type", "imatrix")
        .key("imatrix.datasets", Value::Array(Array::String(vec!["made up".to_owned()])))
        .key(CHUNKS, Value::U32(1))
        .key("imatrix.chunk_size", Value::U32(512));
    let weights =
        |t: &&TensorInfo| t.name.starts_with("blk.") && t.ty == TensorType::F16 && t.name != missing;
    for tensor in model.tensors().iter().filter(weights) {
        let (columns, matrices) = (tensor.shape[0], tensor.shape.get(2).copied().unwrap_or(1));
        let value = |i: u64, e: u64| (1 + (i * i + 7 * e + tensor.name.len() as u64) % 31) as f32;
        let used = |e: u64| if e == 1 { 0.0 } else { 1.0 };
        let sums: Vec<f32> =
            (0..matrices).flat_map(|e| (0..columns).map(move |i| used(e) * value(i, e))).collect();
        let counts: Vec<f32> = (0..matrices).map(|e| 3.0 * used(e)).collect();
        file = file.f32(&format!("{}.in_sum2", tensor.name), &[columns, matrices], &sums);
        file = file.f32(&format!("{}.counts", tensor.name), &[1, matrices], &counts);
    }
    file.write(path).unwrap();
    Importance::open(&[path]).unwrap()
}

fn check(model: &str, weighted: bool) {
    let json = std::fs::read(root().join(format!("fixtures/recipes/demo-{model}.json"))).unwrap();
    let json: Json = serde_json::from_slice(&json).unwrap();
    let (dir, source, _) = convert(&root().join("models/demo").join(model), "f16");
    let mut compared = 0;
    for (run, expected) in json["runs"].as_object().unwrap() {
        let (recipe, has_importance) =
            run.strip_suffix("+importance").map_or((run.as_str(), false), |r| (r, true));
        if has_importance != weighted {
            continue;
        }
        let mut options = Options::new(Recipe::from_name(recipe).unwrap());
        if weighted {
            let matrix = importance(&source, recipe, &dir.path().join("importance.gguf"));
            options.importance = Some(("importance.gguf".to_owned(), matrix));
        }
        let output = dir.path().join("quantized.gguf");
        hf2q_convert::convert(&dir.path().join("out.gguf"), &output, options, &mut Silent::default())
            .unwrap();
        compare(&format!("{model} {run}"), &Gguf::open(&output).unwrap(), expected, &json["kept"]);
        compared += 1;
    }
    assert_eq!(compared, 9);
}

fn compare(context: &str, found: &Gguf, expected: &Json, kept: &Json) {
    let describe = |t: &TensorInfo| match expected.get(&t.name) {
        Some(_) => format!("{} {}", t.ty, crc(found.data(t))),
        None => crc(found.data(t)),
    };
    let text = |json: &Json| json.as_str().unwrap().to_owned();
    let tensors: BTreeMap<&str, String> = found.tensors().iter().map(|t| (&*t.name, describe(t))).collect();
    let golden = kept.as_object().unwrap().iter().chain(expected.as_object().unwrap());
    let golden: BTreeMap<&str, String> = golden.map(|(name, json)| (name.as_str(), text(json))).collect();
    let differences: Vec<String> = (golden.iter())
        .filter(|(name, value)| tensors.get(*name) != Some(value))
        .map(|(name, value)| format!("{name}: {value}, here {:?}", tensors.get(name)))
        .collect();
    assert!(differences.is_empty(), "{context}\n{}", differences.join("\n"));
    assert_eq!(tensors.len(), golden.len(), "{context}");
    assert!(found.tensors().is_sorted_by_key(|t| place(&t.name)), "{context}: the order of llama-quantize");
}

#[test]
fn tiny_dense_is_quantized_byte_for_byte() {
    check("tiny-dense", false);
}

#[test]
fn tiny_dense_is_quantized_byte_for_byte_with_importance() {
    check("tiny-dense", true);
}

#[test]
fn tiny_moe_is_quantized_byte_for_byte() {
    check("tiny-moe", false);
}

#[test]
fn tiny_moe_is_quantized_byte_for_byte_with_importance() {
    check("tiny-moe", true);
}
