//! What a GGUF file says about its tokenizer, before anything is built from it.

use hf2q_gguf::Metadata;

use crate::error::TextError;

/// The tokenizer keys of a file, borrowed where they are large. Ids are checked against the vocabulary when the
/// tokenizer is built.
#[derive(Clone, Debug, Default)]
pub struct TokenizerParts<'a> {
    /// `tokenizer.ggml.model`: `llama`, `gpt2` or `gemma4`.
    pub model: &'a str,
    /// `tokenizer.ggml.pre`: which pre-tokenizer a `gpt2` model uses.
    pub pre: Option<&'a str>,
    /// `tokenizer.ggml.tokens`.
    pub tokens: &'a [String],
    /// `tokenizer.ggml.token_type`: see [`crate::TokenKind`]. Absent: all tokens are normal.
    pub kinds: Option<Vec<i32>>,
    /// `tokenizer.ggml.scores`; a `llama` model needs them.
    pub scores: Option<&'a [f32]>,
    /// `tokenizer.ggml.merges`; the others need them.
    pub merges: Option<&'a [String]>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// [`STOP_IDS_KEY`]: ids that end a generation, as the checkpoint's generation settings list them.
    pub stop_ids: Vec<u32>,
}

/// Holds the ids that end a generation, beyond those of the ordinary tokenizer keys.
pub const STOP_IDS_KEY: &str = "tokenizer.ggml.stop_token_ids";

impl<'a> TokenizerParts<'a> {
    /// Reads the tokenizer keys.
    ///
    /// # Errors
    /// A key that is missing or has another type than it should.
    pub fn from_metadata(metadata: &'a Metadata) -> Result<Self, TextError> {
        let id = |name: &str| metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"));
        let flag = |name: &str| metadata.opt_bool(&format!("tokenizer.ggml.{name}"));
        let has = |key: &str| metadata.get(key).is_some();
        let kinds = "tokenizer.ggml.token_type";
        let scores = "tokenizer.ggml.scores";
        let merges = "tokenizer.ggml.merges";
        Ok(Self {
            model: metadata.str("tokenizer.ggml.model")?,
            pre: metadata.opt_str("tokenizer.ggml.pre")?,
            tokens: metadata.strings("tokenizer.ggml.tokens")?,
            kinds: has(kinds).then(|| metadata.i32s(kinds)).transpose()?,
            scores: has(scores).then(|| metadata.f32s(scores)).transpose()?,
            merges: has(merges).then(|| metadata.strings(merges)).transpose()?,
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            eom: id("eom")?,
            unknown: id("unknown")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            stop_ids: if has(STOP_IDS_KEY) { metadata.u32s(STOP_IDS_KEY)? } else { Vec::new() },
        })
    }
}
