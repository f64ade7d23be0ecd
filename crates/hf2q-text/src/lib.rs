//! Stage 9: text to tokens and back, chat templates, answers taken apart.
//!
//! In: metadata of a GGUF file, text, messages. Out: token ids; text as it is generated, cut at stop strings;
//! prompts as the model's chat template writes them; thoughts, text and tool calls of an answer.

#![forbid(unsafe_code)]

mod added;
pub mod answer;
mod bytemap;
mod classes;
mod detokenize;
mod error;
mod hash;
mod merge;
mod parts;
mod special;
mod split;
mod stop;
mod template;
mod tokenizer;
mod vocab;

pub use detokenize::{Controls, Detokenizer, Utf8Stream};
pub use error::TextError;
pub use parts::{STOP_IDS_KEY, TokenizerParts};
pub use stop::StopStrings;
pub use template::{ChatRequest, ChatTemplate};
pub use tokenizer::{Specials, Tokenizer};
pub use vocab::TokenKind;
