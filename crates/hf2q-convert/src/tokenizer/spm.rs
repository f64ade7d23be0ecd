//! Tokenizers with byte fallback over `▁`-escaped text (Gemma, Llama 2).
//!
//! GGUF knows two forms: `llama`, which merges by the score of the result, and `gemma4`, which merges by a list of
//! pairs. The first is written for models that readers expect it of, and only where both give the same tokens.

use std::collections::{HashMap, HashSet};

use hf2q_arch::Config;
use hf2q_gguf::{Array, Metadata, Value};
use serde_json::Value as Json;

use super::{FILE, Vocabulary, put, put_merges, token_type, unsupported};
use crate::error::ConvertError;
use crate::folder::Folder;

const SPACE: &str = "\u{2581}";
/// Score of tokens that no merge makes.
const NO_MERGE: f32 = -1e6;
/// llama.cpp's score for every token of the `gemma4` form, which has no use for it.
const UNSCORED: f32 = -1000.0;

/// Tokens that llama.cpp shows in its output, since its chat parser reads them there.
const VISIBLE: &[&str] = &[
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
];

pub(super) fn write(
    folder: &Folder,
    config: &Config,
    json: &Json,
    (vocabulary, merges): (&Vocabulary, &[(String, String)]),
    metadata: &mut Metadata,
) -> Result<(), ConvertError> {
    let prefix = adds_space_prefix(folder, json)?;
    put(metadata, "add_space_prefix", Value::Bool(prefix));
    put(metadata, "pre", Value::String("default".to_owned()));
    let scores = if config.architecture.is_gemma4() { None } else { scores(vocabulary, merges) };
    if let Some(scores) = scores {
        put(metadata, "model", Value::String("llama".to_owned()));
        put(metadata, "scores", Value::Array(Array::F32(scores)));
        return Ok(());
    }
    if prefix {
        let accepted = "a tokenizer that prefixes a space must merge by scores";
        return Err(unsupported(folder, "this combination of merges and normalizer", accepted));
    }
    put(metadata, "model", Value::String("gemma4".to_owned()));
    put(metadata, "scores", Value::Array(Array::F32(vec![UNSCORED; vocabulary.tokens.len()])));
    put_merges(folder, merges, metadata)
}

/// Whether the normalizer writes `▁` before the text. It must write it for every space.
fn adds_space_prefix(folder: &Folder, json: &Json) -> Result<bool, ConvertError> {
    let normalizer = &json["normalizer"];
    let steps: Vec<&Json> = match normalizer["normalizers"].as_array() {
        Some(list) => list.iter().collect(),
        None => vec![normalizer],
    };
    let replaces =
        |s: &Json| s["type"] == "Replace" && s["pattern"]["String"] == " " && s["content"] == SPACE;
    let prepends = |s: &Json| s["type"] == "Prepend" && s["prepend"] == SPACE;
    match steps[..] {
        [r] if replaces(r) => Ok(false),
        [p, r] if prepends(p) && replaces(r) => Ok(true),
        _ => Err(folder.bad_key(FILE, "normalizer", Some(normalizer), "the replacement of spaces by ▁")),
    }
}

/// Scores that order results as the merges do; `None` if no scores can: a token is the result of several pairs,
/// but not all of them merge, or merges of one result are not neighbours in rank.
fn scores(vocabulary: &Vocabulary, merges: &[(String, String)]) -> Option<Vec<f32>> {
    let mut rank: HashMap<String, usize> = HashMap::new();
    let mut pairs: HashSet<(&str, &str)> = HashSet::new();
    let mut last = String::new();
    for (i, (a, b)) in merges.iter().enumerate() {
        let result = format!("{a}{b}");
        if rank.contains_key(&result) && last != result {
            return None;
        }
        rank.entry(result.clone()).or_insert(i);
        pairs.insert((a, b));
        last = result;
    }
    let known: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
    let normal = vocabulary.tokens.iter().zip(&vocabulary.types).filter(|(_, t)| **t == token_type::NORMAL);
    for (token, _) in normal {
        for (i, _) in token.char_indices().skip(1) {
            let (a, b) = token.split_at(i);
            if known.contains(a) && known.contains(b) && !pairs.contains(&(a, b)) {
                return None;
            }
        }
    }
    let score = |t: &String| rank.get(t).map_or(NO_MERGE, |&r| -(r as f32));
    Some(vocabulary.tokens.iter().map(score).collect())
}

/// Types as llama.cpp writes them for Gemma 4.
pub(super) fn show_visible(vocabulary: &mut Vocabulary) {
    for (token, kind) in vocabulary.tokens.iter().zip(&mut vocabulary.types) {
        if VISIBLE.contains(&token.as_str()) {
            *kind = token_type::USER_DEFINED;
        }
    }
}
