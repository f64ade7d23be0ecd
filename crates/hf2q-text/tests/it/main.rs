//! Tests of the public interface.

#![expect(clippy::unwrap_used, reason = "a failed test may panic, in its helpers too")]

mod answers;
mod goldens;
mod loading;
mod safe;
mod stream;
mod templates;

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

/// The parts of a tokenizer with Gemma 4's layout: some control tokens, byte tokens, letters and other characters.
fn small_vocabulary(specials: &[(&str, i32)]) -> (Vec<String>, Vec<i32>) {
    let bytes = (0..=255).map(|b| (format!("<0x{b:02X}>"), 6));
    let letters = ('!'..='~').chain(['\n', '\u{2581}']).map(|c| (c.to_string(), 1));
    let specials = specials.iter().map(|(text, kind)| ((*text).to_owned(), *kind));
    specials.chain(bytes).chain(letters).unzip()
}

/// Every vocabulary of the torture set.
const VOCABULARIES: [&str; 7] = ["demo", "llama3", "qwen2", "qwen35", "smollm", "spm", "spm-prefix"];
