//! What cannot be enforced, and why.

/// A schema, grammar or tool that cannot be enforced. The client's request is at fault, but for
/// [`GrammarError::Vocabulary`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// A keyword of a JSON schema that cannot be enforced, or that is no JSON schema.
    #[error("the schema cannot be enforced: {keyword:?} at {path}: {why}")]
    Keyword {
        /// JSON pointer of the schema that holds the keyword, `#` for the whole.
        path: String,
        /// The keyword.
        keyword: String,
        /// What is wrong and what is accepted.
        why: String,
    },
    /// A JSON schema that cannot be enforced for a reason that no single keyword has.
    #[error("the schema cannot be enforced: {why}")]
    Schema {
        /// The reason.
        why: String,
    },
    /// A regular expression, list of choices or grammar that cannot be used.
    #[error("the {kind} cannot be used: {why}")]
    Grammar {
        /// What it is, such as `regular expression`.
        kind: &'static str,
        /// The reason, with its place where there is one.
        why: String,
    },
    /// Parameters of a tool.
    #[error("the parameters of the function {name:?}: {source}")]
    Tool {
        /// The function.
        name: String,
        /// What is wrong with its schema.
        source: Box<GrammarError>,
    },
    /// A choice of a function that the request does not have, or of any where it has none.
    #[error("tool_choice wants a call of {name}, and the tools of this request are {known}")]
    NoSuchTool {
        /// What is to be called.
        name: String,
        /// The functions there are.
        known: String,
    },
    /// The model's vocabulary cannot be constrained.
    #[error("the vocabulary of {tokens} tokens cannot be constrained: {why}")]
    Vocabulary {
        /// Its size.
        tokens: usize,
        /// The reason.
        why: String,
    },
}
