//! Files that other programs wrote.

use std::path::PathBuf;

use hf2q_gguf::{Gguf, GgufBuilder};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizer")).join(name)
}

/// Every vocabulary opens, and written again it is the same file byte by byte.
#[test]
fn vocabularies_open_and_are_written_again_unchanged() {
    for name in ["demo", "llama3", "qwen2", "qwen35", "smollm", "spm", "spm-prefix"] {
        let path = fixture(&format!("{name}.gguf"));
        let file = Gguf::open(&path).unwrap();
        let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap();
        let kinds = file.metadata().i32s("tokenizer.ggml.token_type").unwrap();
        assert!(!tokens.is_empty() && tokens.len() == kinds.len(), "{name}");
        let again = GgufBuilder::new().metadata(file.metadata()).to_bytes().unwrap();
        let original = std::fs::read(&path).unwrap();
        let shared = again.len().min(original.len());
        assert_eq!(again[..shared], original[..shared], "{name}");
        assert!(again.len().abs_diff(original.len()) < 32, "{name}");
    }
}
