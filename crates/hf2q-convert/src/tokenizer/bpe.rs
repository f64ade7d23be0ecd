//! Byte-level BPE: the pre-tokenizer is recognized by what it does and written by its GGUF name.

use hf2q_gguf::{Metadata, Value};
use serde_json::Value as Json;

use super::{FILE, put, put_merges, unsupported};
use crate::error::ConvertError;
use crate::folder::Folder;

const ACCEPTED: &str = "byte-level pre-tokenizers of GPT-2, Llama 3, Qwen 2/3 and SmolLM can be converted";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub(super) fn write(
    folder: &Folder,
    json: &Json,
    merges: &[(String, String)],
    metadata: &mut Metadata,
) -> Result<(), ConvertError> {
    put(metadata, "model", Value::String("gpt2".to_owned()));
    put(metadata, "pre", Value::String(pre_tokenizer(folder, json)?.to_owned()));
    put_merges(folder, merges, metadata)
}

fn pre_tokenizer(folder: &Folder, json: &Json) -> Result<&'static str, ConvertError> {
    let pre = &json["pre_tokenizer"];
    let steps: Vec<&Json> = match pre["pretokenizers"].as_array() {
        Some(list) => list.iter().collect(),
        None => vec![pre],
    };
    let kinds: Vec<&str> = steps.iter().map(|s| s["type"].as_str().unwrap_or("missing")).collect();
    let first = steps.first().copied().unwrap_or(&Json::Null);
    let regex = first["pattern"]["Regex"].as_str();
    let splits = |own: bool| steps.last().is_some_and(|s| s["use_regex"].as_bool().unwrap_or(true) == own);
    let name = match (&kinds[..], regex) {
        (["ByteLevel"], _) if splits(true) => "gpt-2",
        (["Digits", "ByteLevel"], _) if splits(true) && first["individual_digits"] == true => "smollm",
        (["Split", "ByteLevel"], Some(LLAMA3)) if splits(false) => "llama-bpe",
        (["Split", "ByteLevel"], Some(QWEN2)) if splits(false) => "qwen2",
        _ => return Err(unsupported(folder, format!("pre_tokenizer {}", summary(pre)), ACCEPTED)),
    };
    let expected = if name == "qwen2" { "NFC" } else { "null" };
    match json["normalizer"]["type"].as_str() {
        None if name != "qwen2" => Ok(name),
        Some("NFC") if name == "qwen2" => Ok(name),
        _ => Err(folder.bad_key(FILE, "normalizer", json.get("normalizer"), expected)),
    }
}

fn summary(json: &Json) -> String {
    const SHOWN: usize = 200;
    json.to_string().chars().take(SHOWN).collect()
}
