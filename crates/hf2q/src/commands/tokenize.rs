//! `hf2q tokenize`.

use anyhow::Result;
use hf2q_text::{Specials, Tokenizer};

use crate::args::TokenizeArgs;
use crate::{load, terminal};

pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    let gguf = load::any(&args.model)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let text = terminal::text_or_stdin(args.text.as_deref(), "TEXT")?;
    let specials = if args.special { Specials::Parse } else { Specials::AsText };
    let ids =
        if args.bos { tokenizer.encode_prompt(&text, specials) } else { tokenizer.encode(&text, specials) };
    if args.json {
        return terminal::print_line(&serde_json::to_string(&ids)?);
    }
    for id in ids {
        terminal::print_line(&format!("{id:>8}  {:?}", tokenizer.token_text(id)))?;
    }
    Ok(())
}
