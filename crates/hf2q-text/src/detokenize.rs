//! Ids to text, whole or as they arrive.

use crate::tokenizer::Tokenizer;

/// Whether control tokens appear in decoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controls {
    /// By their spelling.
    Show,
    /// Not at all.
    Skip,
}

/// Collects bytes and releases them as text.
///
/// A character whose bytes come in several tokens is held back until it is whole or cannot become whole. The
/// joined output equals the lossy decoding of all bytes at once, however they are cut.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of one character: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes bytes and appends all text that is complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut chunks = self.pending.utf8_chunks().peekable();
        let mut kept = 0;
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            if chunk.invalid().is_empty() {
                continue;
            }
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                kept = chunk.invalid().len();
            } else {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..self.pending.len() - kept);
    }

    /// Ends the stream: the rest of a character that never became whole is one U+FFFD.
    pub fn finish(self) -> &'static str {
        if self.pending.is_empty() { "" } else { "\u{fffd}" }
    }
}

/// Whether bytes are the beginning of a character rather than an error.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

/// Decodes ids one by one. Made by [`Tokenizer::detokenizer`]; what it returns, joined, is what
/// [`Tokenizer::decode`] returns for the same ids.
pub struct Detokenizer<'t> {
    tokenizer: &'t Tokenizer,
    controls: Controls,
    utf8: Utf8Stream,
    /// The next text starts with a space that encoding added.
    at_start: bool,
}

impl<'t> Detokenizer<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, controls: Controls) -> Self {
        Self { tokenizer, controls, utf8: Utf8Stream::default(), at_start: tokenizer.space_prefix }
    }

    /// Continues a text that went before: a space at its start belongs to it.
    #[must_use]
    pub fn mid_text(mut self) -> Self {
        self.at_start = false;
        self
    }

    /// Takes a token and returns the text that it completes, often none.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_to(id, &mut text);
        text
    }

    /// As [`Detokenizer::push`], appending to `out`.
    pub fn push_to(&mut self, id: u32, out: &mut String) {
        let control = self.tokenizer.is_control(id);
        if control && self.controls == Controls::Skip {
            return;
        }
        let mut bytes = self.tokenizer.token_bytes(id);
        if self.at_start && !control && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.at_start = false;
        }
        self.utf8.push(bytes, out);
    }

    /// Ends the text: what was held back, as U+FFFD.
    pub fn finish(self) -> String {
        self.utf8.finish().to_owned()
    }
}
