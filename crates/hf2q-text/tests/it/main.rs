//! Tests of the public interface.

mod goldens;
mod stream;

use std::path::PathBuf;

use hf2q_gguf::Gguf;
use hf2q_text::Tokenizer;

/// A path below the repository's `fixtures` folder.
fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(path)
}

/// A JSON file below the `fixtures` folder.
fn json(path: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(fixture(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The tokenizer of a small vocabulary of the torture set.
fn tokenizer(name: &str) -> Tokenizer {
    let file = Gguf::open(&fixture(&format!("tokenizer/{name}.gguf"))).unwrap();
    Tokenizer::from_metadata(file.metadata()).unwrap()
}

/// Every vocabulary of the torture set.
const VOCABULARIES: [&str; 7] = ["demo", "llama3", "qwen2", "qwen35", "smollm", "spm", "spm-prefix"];
