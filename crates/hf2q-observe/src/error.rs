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
        "the input of {tensor} is not finite, so its importance is unknown; the model's weights may be damaged, `hf2q inspect` checks them"
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
    /// What was measured fits no importance file.
    #[error(transparent)]
    Importance(#[from] ImportanceError),
}
