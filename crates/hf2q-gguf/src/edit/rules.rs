//! Which keys an edit leaves alone.

use crate::error::GgufError;
use crate::header::ALIGNMENT_KEY;
use crate::metadata::Metadata;
use crate::value::{Array, Value};

/// Longest key that the GGUF specification allows, in bytes.
const MAX_KEY: usize = u16::MAX as usize;

/// What is to be done to a key.
pub(super) enum Operation<'a> {
    Set(&'a Value),
    Unset,
}

/// Why a key stays as it is.
pub(super) struct Refusal {
    pub(super) why: String,
    pub(super) can_force: bool,
}

/// Arrays with one element for each token.
const PER_TOKEN: &[&str] = &["tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"];

/// Keys without which a model cannot be read, or is another.
const IDENTITY: &[(&str, &str)] = &[
    (
        "general.architecture",
        "it says how the tensors are computed, and the names of other keys begin with it",
    ),
    ("tokenizer.ggml.model", "the vocabulary is read by it"),
    ("tokenizer.ggml.merges", "the vocabulary was made with these merges"),
];

/// What speaks against an operation, if anything does.
pub(super) fn refusal(
    key: &str,
    operation: &Operation<'_>,
    metadata: &Metadata,
    alone: bool,
) -> Option<Refusal> {
    if key == ALIGNMENT_KEY {
        let why = "the places of all tensors follow from it".to_owned();
        return Some(Refusal { why, can_force: false });
    }
    if key.starts_with("split.") {
        let why = "it ties the files of a split model together".to_owned();
        return Some(Refusal { why, can_force: alone && matches!(operation, Operation::Unset) });
    }
    if PER_TOKEN.contains(&key) {
        return per_token(operation, metadata);
    }
    let (_, why) = IDENTITY.iter().find(|(name, _)| *name == key)?;
    // A file without it may be given it.
    metadata.get(key).is_some().then(|| Refusal { why: (*why).to_owned(), can_force: true })
}

fn per_token(operation: &Operation<'_>, metadata: &Metadata) -> Option<Refusal> {
    let tokens = PER_TOKEN.iter().find_map(|key| array(metadata.get(key)?)).map(Array::len)?;
    let found = match operation {
        Operation::Unset => "it would be removed".to_owned(),
        Operation::Set(value) => match array(value) {
            Some(array) if array.len() == tokens => return None,
            Some(array) => format!("it would have {} elements", array.len()),
            None => format!("it would be {}", value.type_name()),
        },
    };
    Some(Refusal {
        why: format!("it has an element for each of the {tokens} tokens; {found}"),
        can_force: true,
    })
}

fn array(value: &Value) -> Option<&Array> {
    match value {
        Value::Array(array) => Some(array),
        _ => None,
    }
}

/// Whether a new key can have this name.
pub(super) fn check_name(key: &str) -> Result<(), GgufError> {
    let usable = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(usable) {
        return Ok(());
    }
    Err(GgufError::KeyName { key: key.to_owned() })
}
