//! Which ids begin, end, pad and replace, and whether a prompt gets them.

use hf2q_gguf::{Array, Metadata, Value};
use serde_json::Value as Json;

use super::{FILE, Vocabulary, put};
use crate::error::ConvertError;
use crate::folder::Folder;

const CONFIG: &str = "tokenizer_config.json";

pub(super) fn write(
    folder: &Folder,
    json: &Json,
    vocabulary: &Vocabulary,
    metadata: &mut Metadata,
) -> Result<(), ConvertError> {
    let config = folder.json(CONFIG)?.unwrap_or(Json::Null);
    let model = folder.required_json("config.json")?;
    let mut eos = None;
    for (name, key) in [
        ("bos", "bos_token_id"),
        ("eos", "eos_token_id"),
        ("unk", "unknown_token_id"),
        ("pad", "padding_token_id"),
        ("mask", "mask_token_id"),
    ] {
        let id = token_id(folder, &config, (name, vocabulary))?
            .or_else(|| first_id(&model, &format!("{name}_token_id")));
        if let Some(id) = id.filter(|&id| (id as usize) < vocabulary.tokens.len()) {
            put(metadata, key, Value::U32(id));
            eos = if name == "eos" { Some(id) } else { eos };
        }
    }
    let stops = folder.json("generation_config.json")?.map(|g| ids(&g["eos_token_id"]));
    let stops = stops.filter(|s| !s.is_empty()).unwrap_or_else(|| ids(&model["eos_token_id"]));
    if let Some(&turn_end) =
        stops.iter().find(|&&id| Some(id) != eos && (id as usize) < vocabulary.tokens.len())
    {
        put(metadata, "eot_token_id", Value::U32(turn_end));
    }
    if stops.len() > 1 {
        put(metadata, "stop_token_ids", Value::Array(Array::U32(stops)));
    }
    let added = |key: &str, token: &str| {
        let in_template = || {
            template_adds(
                &json["post_processor"],
                config[token].as_str().or(config[token]["content"].as_str()),
            )
        };
        config[key].as_bool().unwrap_or_else(in_template)
    };
    put(metadata, "add_bos_token", Value::Bool(added("add_bos_token", "bos_token")));
    put(metadata, "add_eos_token", Value::Bool(added("add_eos_token", "eos_token")));
    Ok(())
}

/// `bos_token` and its like are a string or an object with `content`.
fn token_id(
    folder: &Folder,
    config: &Json,
    (name, vocabulary): (&str, &Vocabulary),
) -> Result<Option<u32>, ConvertError> {
    let value = &config[format!("{name}_token")];
    let Some(text) = value.as_str().or_else(|| value["content"].as_str()) else { return Ok(None) };
    let missing =
        || folder.bad_key(CONFIG, format!("{name}_token"), Some(value), &format!("a token of {FILE}"));
    vocabulary.id(text).map(Some).ok_or_else(missing)
}

fn first_id(config: &Json, key: &str) -> Option<u32> {
    ids(&config[key]).first().copied()
}

fn ids(value: &Json) -> Vec<u32> {
    let id = |v: &Json| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Json::Array(list) => list.iter().filter_map(id).collect(),
        other => id(other).into_iter().collect(),
    }
}

/// Whether a template post-processor puts `token` around a single text.
fn template_adds(processor: &Json, token: Option<&str>) -> bool {
    let Some(token) = token else { return false };
    let processors =
        processor["processors"].as_array().map_or_else(|| vec![processor], |list| list.iter().collect());
    let pieces = processors.iter().filter_map(|p| p["single"].as_array()).flatten();
    pieces.into_iter().any(|piece| piece["SpecialToken"]["id"] == token)
}
