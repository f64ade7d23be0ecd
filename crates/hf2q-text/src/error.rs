//! What can go wrong between text and tokens.

use hf2q_gguf::GgufError;

/// Errors of this crate. Encoding and decoding never fail; loading a tokenizer and everything about templates can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A tokenizer key is missing or has another type than it should.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The file names a tokenizer model that this crate does not know.
    #[error("tokenizer.ggml.model is {found:?}; supported are \"llama\", \"gpt2\" and \"gemma4\"")]
    UnknownModel {
        /// The value in the file.
        found: String,
    },
    /// The file names a pre-tokenizer that this crate does not know: guessing would split text wrongly.
    #[error("tokenizer.ggml.pre is {found:?}; supported are {known}")]
    UnknownPre {
        /// The value in the file.
        found: String,
        /// The names that are accepted.
        known: String,
    },
    /// Arrays that describe the same tokens differ in length, or one is absent.
    #[error("{key} has {found} entries; the vocabulary has {expected}, so the file is damaged")]
    Length {
        /// The metadata key.
        key: &'static str,
        /// Entries found.
        found: usize,
        /// Entries expected.
        expected: usize,
    },
    /// A token cannot be what its type says.
    #[error("token {id} ({text:?}): {reason}")]
    Token {
        /// The token's id.
        id: usize,
        /// Its text in the file.
        text: String,
        /// What is wrong and what is accepted.
        reason: &'static str,
    },
    /// A merge rule is not two pieces with a space between.
    #[error("tokenizer.ggml.merges[{index}] is {text:?}; a rule is two pieces separated by one space")]
    Merge {
        /// Its place in the list.
        index: usize,
        /// The rule as stored.
        text: String,
    },
    /// A special id points outside the vocabulary.
    #[error("{key} is {id}; the vocabulary has {tokens} tokens")]
    IdRange {
        /// The metadata key.
        key: &'static str,
        /// The id found.
        id: u64,
        /// Size of the vocabulary.
        tokens: usize,
    },
    /// The vocabulary is larger than 32-bit offsets can address.
    #[error("the vocabulary needs {bytes} bytes of text; at most 4 GiB are supported")]
    VocabularySize {
        /// Bytes of all tokens together.
        bytes: usize,
    },
    /// No thread to run the template on.
    #[error("the chat template cannot be run: a thread with a large stack is refused: {message}")]
    TemplateThread {
        /// What the system says.
        message: String,
    },
    /// The chat template does not parse.
    #[error("chat template does not compile: {message}")]
    TemplateSyntax {
        /// The parser's message with its line.
        message: String,
    },
    /// The chat template refused the messages with `raise_exception`.
    #[error("the chat template refused these messages: {message}")]
    TemplateRaised {
        /// The template's own words.
        message: String,
    },
    /// The chat template used up its step budget.
    #[error("the chat template needs more than {fuel} steps; it loops too long or builds too much text")]
    TemplateFuel {
        /// The budget in steps.
        fuel: u64,
    },
    /// The chat template failed for another reason.
    #[error("chat template failed: {message}")]
    TemplateRender {
        /// The engine's message with its line.
        message: String,
    },
}
