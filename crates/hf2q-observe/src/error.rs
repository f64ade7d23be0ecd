//! What can go wrong while a model is observed.

use hf2q_convert::ImportanceError;
use hf2q_engine::EngineError;

/// Why a measurement stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The engine refused a step.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A model whose activations overflow, or whose weights are damaged.
    #[error(
        "the input of {tensor} is not finite, so its importance is unknown; the model's weights may be damaged, `hf2q verify` checks them"
    )]
    NotFinite {
        /// GGUF name of the weight.
        tensor: String,
    },
    /// The backend does not show what an operation reads.
    #[error("operation {op} does not show its input")]
    Hidden {
        /// Name of the operation.
        op: String,
    },
    /// Distributions over different tokens have no distance.
    #[error(
        "{reference} has a vocabulary of {expected} tokens, {candidate} one of {found}: only models with the same tokens can be compared"
    )]
    Vocabulary {
        /// What the others are compared with.
        reference: String,
        /// Its number of tokens.
        expected: usize,
        /// What has another number.
        candidate: String,
        /// Its number of tokens.
        found: usize,
    },
    /// What predicts nothing is no measure.
    #[error(
        "the logits of {name} after {position} tokens are not finite; the model's weights may be damaged (`hf2q verify` checks them), or its cache needs a format with a wider range"
    )]
    Logits {
        /// What was computed.
        name: String,
        /// Tokens that were read before them.
        position: usize,
    },
    /// Traced tensors that make no file.
    #[error("the traced tensors cannot be written as safetensors: {why}")]
    Trace {
        /// What the format does not take.
        why: String,
    },
    /// A text too short for what is to be planted in it.
    #[error(
        "a text of {length} tokens has no room for {facts} facts, a question and lines between them: at least {least} are needed; give larger --lengths or fewer --depths"
    )]
    Haystack {
        /// Tokens that were asked for.
        length: usize,
        /// What is to be planted.
        facts: usize,
        /// Fewest tokens.
        least: usize,
    },
    /// What was measured fits no importance file.
    #[error(transparent)]
    Importance(#[from] ImportanceError),
}
