//! `tokenizer.json` and its companions to GGUF metadata.

mod bpe;
mod special;
mod spm;

use hf2q_arch::Config;
use hf2q_gguf::{Array, Metadata, Value};
use serde_json::Value as Json;

use crate::error::ConvertError;
use crate::folder::Folder;

const FILE: &str = "tokenizer.json";

/// Token types of GGUF.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// The vocabulary, indexed by id.
struct Vocabulary {
    tokens: Vec<String>,
    types: Vec<i32>,
}

impl Vocabulary {
    fn id(&self, token: &str) -> Option<u32> {
        self.tokens.iter().position(|t| t == token).and_then(|i| u32::try_from(i).ok())
    }
}

/// Whether the folder has a tokenizer.
pub(crate) fn is_there(folder: &Folder) -> bool {
    folder.path(FILE).exists()
}

/// Writes `tokenizer.*` keys.
pub(crate) fn write(folder: &Folder, config: &Config, metadata: &mut Metadata) -> Result<(), ConvertError> {
    let json = folder.required_json(FILE)?;
    let model = &json["model"];
    if model["type"].as_str() != Some("BPE") {
        return Err(folder.bad_key(FILE, "model.type", model.get("type"), "BPE"));
    }
    let mut vocabulary = vocabulary(folder, &json, config.vocab)?;
    let merges = merges(folder, model)?;
    if model["byte_fallback"].as_bool() == Some(true) {
        spm::write(folder, config, &json, (&vocabulary, &merges), metadata)?;
    } else {
        bpe::write(folder, &json, &merges, metadata)?;
    }
    if config.architecture.is_gemma4() {
        spm::show_visible(&mut vocabulary);
    }
    special::write(folder, &json, &vocabulary, metadata)?;
    let Vocabulary { tokens, types } = vocabulary;
    put(metadata, "tokens", Value::Array(Array::String(tokens)));
    put(metadata, "token_type", Value::Array(Array::I32(types)));
    if let Some(template) = chat_template(folder)? {
        metadata.insert("tokenizer.chat_template".to_owned(), Value::String(template));
    }
    Ok(())
}

fn put(metadata: &mut Metadata, key: &str, value: Value) {
    metadata.insert(format!("tokenizer.ggml.{key}"), value);
}

fn unsupported(folder: &Folder, what: impl Into<String>, accepted: &'static str) -> ConvertError {
    ConvertError::Tokenizer { path: folder.path(FILE), what: what.into(), accepted }
}

/// Tokens and types; ids without a token (rows that pad the embedding) are named `[PADn]`.
fn vocabulary(folder: &Folder, json: &Json, size: usize) -> Result<Vocabulary, ConvertError> {
    let vocab = json["model"]["vocab"].as_object();
    let vocab =
        vocab.ok_or_else(|| folder.bad_key(FILE, "model.vocab", json["model"].get("vocab"), "an object"))?;
    let mut tokens: Vec<String> = (0..size).map(|i| format!("[PAD{i}]")).collect();
    let mut types = vec![token_type::UNUSED; size];
    let mut set = |token: &str, id: Option<u64>, kind: i32| {
        let index = id.and_then(|i| usize::try_from(i).ok()).filter(|&i| i < size);
        let index = index.ok_or_else(|| {
            let what = format!("token {token:?} with id {id:?}");
            unsupported(folder, what, "ids must be below vocab_size of config.json")
        })?;
        if types[index] != token_type::UNUSED && tokens[index] != token {
            let what = format!("id {index} of two tokens, {:?} and {token:?},", tokens[index]);
            return Err(unsupported(folder, what, "each id names one token"));
        }
        tokens[index] = token.to_owned();
        types[index] = kind;
        Ok::<(), ConvertError>(())
    };
    let unknown = json["model"]["unk_token"].as_str();
    for (token, id) in vocab {
        let kind = match token {
            t if Some(t.as_str()) == unknown => token_type::UNKNOWN,
            t if is_byte_token(t) && json["model"]["byte_fallback"] == true => token_type::BYTE,
            _ => token_type::NORMAL,
        };
        set(token, id.as_u64(), kind)?;
    }
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let content = added["content"].as_str().unwrap_or_default();
        let kind = match added["special"].as_bool() {
            Some(true) if Some(content) == unknown => token_type::UNKNOWN,
            Some(true) => token_type::CONTROL,
            _ => token_type::USER_DEFINED,
        };
        set(content, added["id"].as_u64(), kind)?;
    }
    Ok(Vocabulary { tokens, types })
}

/// `<0x00>` to `<0xFF>`.
fn is_byte_token(token: &str) -> bool {
    let hex = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    hex.is_some_and(|h| h.len() == 2 && h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Pairs in order of rank; files hold them as `"a b"` or `["a", "b"]`.
fn merges(folder: &Folder, model: &Json) -> Result<Vec<(String, String)>, ConvertError> {
    let list = model["merges"].as_array();
    let list = list.ok_or_else(|| folder.bad_key(FILE, "model.merges", model.get("merges"), "a list"))?;
    let pair = |merge: &Json| match merge {
        Json::String(s) => s.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())),
        Json::Array(parts) => match &parts[..] {
            [Json::String(a), Json::String(b)] => Some((a.clone(), b.clone())),
            _ => None,
        },
        _ => None,
    };
    let bad = |i: usize| folder.bad_key(FILE, format!("model.merges[{i}]"), list.get(i), "a pair of tokens");
    list.iter().enumerate().map(|(i, m)| pair(m).ok_or_else(|| bad(i))).collect()
}

/// GGUF keeps merges as `"a b"`, so a token with a space in it cannot be written.
fn put_merges(
    folder: &Folder,
    merges: &[(String, String)],
    metadata: &mut Metadata,
) -> Result<(), ConvertError> {
    if let Some((a, b)) = merges.iter().find(|(a, b)| a.contains(' ') || b.contains(' ')) {
        let what = format!("the merge of {a:?} and {b:?}");
        return Err(unsupported(folder, what, "merged tokens may not contain spaces"));
    }
    let joined = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
    put(metadata, "merges", Value::Array(Array::String(joined)));
    Ok(())
}

/// From `chat_template.jinja`, or `tokenizer_config.json` (a string, or a list with one named `default`).
fn chat_template(folder: &Folder) -> Result<Option<String>, ConvertError> {
    const CONFIG: &str = "tokenizer_config.json";
    if let Some(text) = folder.text("chat_template.jinja")? {
        return Ok(Some(text));
    }
    let Some(config) = folder.json(CONFIG)? else { return Ok(None) };
    match config.get("chat_template") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(s)) => Ok(Some(s.clone())),
        Some(Json::Array(list)) => {
            let default = list.iter().find(|t| t["name"] == "default").and_then(|t| t["template"].as_str());
            Ok(default.map(str::to_owned))
        }
        other => Err(folder.bad_key(CONFIG, "chat_template", other, "a string or a list of named templates")),
    }
}
