//! Whether metadata and tensors make a model.

use std::collections::BTreeMap;

use hf2q_arch::{Architecture, Config};
use hf2q_gguf::{Array, Gguf, Metadata, Value};

use super::{Problem, Verification};

/// Shapes by name, columns first.
type Shapes = BTreeMap<String, Vec<u64>>;

/// How tensors fit the model that metadata describe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCheck {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Tensors that nothing reads.
    pub unused: Vec<String>,
}

/// Compares the tensors that metadata call for with those that are there.
pub fn check_model(metadata: &Metadata, tensors: &Shapes) -> ModelCheck {
    let config = match Config::from_metadata(metadata, &|name| tensors.contains_key(name)) {
        Ok(config) => config,
        Err(error) => {
            let problems = vec![Problem::Model { error: error.to_string() }];
            return ModelCheck { problems, unused: Vec::new() };
        }
    };
    let mut check = ModelCheck::default();
    let mut rest: BTreeMap<&str, &Vec<u64>> = tensors.iter().map(|(n, s)| (n.as_str(), s)).collect();
    for row in config.tensors() {
        let expected: Vec<u64> = row.shape.iter().map(|&d| d as u64).collect();
        match rest.remove(row.gguf.as_str()) {
            Some(found) if significant(found) != significant(&expected) => {
                check.problems.push(Problem::Shape { tensor: row.gguf, found: found.clone(), expected });
            }
            None if !row.optional => check.problems.push(Problem::Missing { tensor: row.gguf }),
            _ => {}
        }
    }
    for name in rest.into_keys() {
        if changes_results(name) {
            check.problems.push(Problem::Unsupported { tensor: name.to_owned() });
        } else {
            check.unused.push(name.to_owned());
        }
    }
    check
}

/// Biases, and scales of matrices that are stored apart.
fn changes_results(name: &str) -> bool {
    name.ends_with(".bias") || name.ends_with("scale")
}

/// A shape without the ones at its end, which say nothing.
pub(super) fn significant(shape: &[u64]) -> &[u64] {
    let len = shape.iter().rposition(|&d| d != 1).map_or(0, |last| last + 1);
    &shape[..len]
}

/// Checks tensors and tokenizer of a file.
pub(super) fn check(gguf: &Gguf, found: &mut Verification) {
    let shapes: Shapes = gguf.tensors().iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
    let ModelCheck { problems, unused } = check_model(gguf.metadata(), &shapes);
    found.problems.extend(problems);
    if let Some(first) = unused.first() {
        found.warnings.push(format!("{} tensors are read by nothing, the first is {first}", unused.len()));
    }
    let embedding = shapes.get("token_embd.weight").and_then(|shape| shape.get(1));
    let what = match is_drafter(gguf.metadata()) {
        true => None,
        false => tokenizer(gguf.metadata(), embedding.copied()),
    };
    found.problems.extend(what.map(|what| Problem::Tokenizer { what }));
}

/// Whether the file drafts for another model and brings no tokenizer, which it need not.
fn is_drafter(metadata: &Metadata) -> bool {
    let architecture = metadata.str("general.architecture").ok().and_then(Architecture::from_name);
    architecture.is_some_and(Architecture::is_drafter) && metadata.get("tokenizer.ggml.model").is_none()
}

/// What is wrong with the tokenizer of a file whose embedding has so many rows.
fn tokenizer(metadata: &Metadata, embedding: Option<u64>) -> Option<String> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let kind = match metadata.str("tokenizer.ggml.model") {
        Ok("no_vocab") | Err(_) => return Some("there is none (`tokenizer.ggml.model`)".to_owned()),
        Ok(kind) => kind,
    };
    let tokens = match metadata.strings(TOKENS) {
        Ok(tokens) => tokens.len(),
        Err(error) => return Some(error.to_string()),
    };
    if let Some(rows) = embedding.filter(|&rows| rows != tokens as u64) {
        return Some(format!("{tokens} tokens, but the embedding has {rows} rows"));
    }
    // Of each kind, what its tokens cannot be merged without.
    let needed = if kind == "gpt2" { "tokenizer.ggml.merges" } else { "tokenizer.ggml.scores" };
    for key in [needed, "tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        let len = match metadata.get(key) {
            Some(Value::Array(array)) => array.len(),
            Some(other) => return Some(format!("`{key}` is {}; expected an array", other.type_name())),
            None if key == needed && matches!(kind, "gpt2" | "llama") => {
                return Some(format!("`{key}` is missing, {kind} tokenizers need it"));
            }
            None => continue,
        };
        if key != "tokenizer.ggml.merges" && len != tokens {
            return Some(format!("`{key}` has {len} elements for {tokens} tokens"));
        }
    }
    None
}

/// Notes keys that say what is computed, or which token is which, and differ from what a conversion of the source would
/// write. Other programs choose other forms for some, so that this alone is no problem.
pub(super) fn compare_metadata(file: &Metadata, source: &Metadata, found: &mut Verification) {
    let architecture = |m: &Metadata| m.str("general.architecture").map(str::to_owned).unwrap_or_default();
    let (mine, its) = (architecture(file), architecture(source));
    if mine != its {
        found.problems.push(Problem::Model { error: format!("it is {mine:?}, the source is {its:?}") });
        return;
    }
    let prefix = format!("{mine}.");
    for (key, expected) in source.iter().filter(|(key, _)| key.starts_with(&prefix) || is_vocabulary(key)) {
        let Some(value) = file.get(key).filter(|value| !same(value, expected)) else { continue };
        let detail = match (value, expected) {
            (Value::Array(a), Value::Array(b)) => {
                format!("{} values, in the source {}", a.len(), b.len())
            }
            _ => format!("{value}, in the source {expected}"),
        };
        found.warnings.push(format!("{key} differs from the source: {detail}"));
    }
}

fn is_vocabulary(key: &str) -> bool {
    key == "tokenizer.ggml.tokens" || key == "tokenizer.ggml.merges" || key.ends_with("_token_id")
}

/// Equal values, whatever number type holds them.
fn same(a: &Value, b: &Value) -> bool {
    let float = |value: &Value| match *value {
        Value::F32(v) => Some(v),
        Value::F64(v) => Some(v as f32),
        _ => None,
    };
    let integers = |array: &Array| match array {
        Array::Bool(v) => Some(v.iter().map(|&b| i128::from(b)).collect()),
        other => other.as_integers(),
    };
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a == b || integers(a).is_some_and(|values| Some(values) == integers(b))
        }
        _ => {
            a == b
                || a.as_integer().is_some_and(|n| Some(n) == b.as_integer())
                || float(a).is_some_and(|x| Some(x) == float(b))
        }
    }
}
