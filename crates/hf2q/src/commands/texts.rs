//! Texts that models are measured on.

use std::path::Path;

use anyhow::{Context, Result};
use hf2q_text::{Specials, Tokenizer};

/// A whole file.
pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The token that a text of this model starts with.
pub(super) fn start_of_text(tokenizer: &Tokenizer) -> Option<u32> {
    let ends = tokenizer.encode_prompt("", Specials::AsText);
    tokenizer.bos().filter(|bos| ends.first() == Some(bos))
}
