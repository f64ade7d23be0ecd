//! Texts that models are measured on.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use hf2q_model::Model;
use hf2q_text::{Specials, Tokenizer};

use crate::terminal;

/// A whole file.
pub(super) fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{}: byte {at} is no UTF-8; give a text file in UTF-8", path.display())
    })
}

/// Says it where more tokens are read at once than the model was made for: what it predicts there says little of it.
pub(crate) fn note_length(flag: &str, tokens: usize, model: &Model) {
    let longest = model.config().context_length;
    if tokens > longest {
        terminal::note(&format!(
            "note: {flag} {tokens} is more than the model's context of {longest} tokens"
        ));
    }
}

/// The token that a text of this model starts with.
pub(super) fn start_of_text(tokenizer: &Tokenizer) -> Option<u32> {
    let ends = tokenizer.encode_prompt("", Specials::AsText);
    tokenizer.bos().filter(|bos| ends.first() == Some(bos))
}
