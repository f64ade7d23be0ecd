//! What keeps a check from running at all. A check that ran and found a difference reports it instead.

use std::path::PathBuf;

use hf2q_model::ModelError;
use hf2q_plan::{BackendError, PlanError, SelectError, StepError};

/// Why a check could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceError {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A step was built wrongly.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A recording was built wrongly.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Names of operations that the recording does not have.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A model cannot be recorded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The pages that a check gave itself do not suffice.
    #[error("the check needs more than the {pages} pages it gave group {group}")]
    Pages {
        /// Index of the group.
        group: usize,
        /// Pages it has.
        pages: usize,
    },
    /// A fixture cannot be used.
    #[error("fixture {}: {why}", path.display())]
    Fixture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A recording has no embedding, so it takes no tokens.
    #[error("the recording has no embedding")]
    NoEmbedding,
    /// A golden run would not fit the program it was given.
    #[error("{what} has {found} tokens, the runner was opened for {context}")]
    Context {
        /// Prompt or chunk.
        what: String,
        /// Its tokens.
        found: usize,
        /// The runner's positions.
        context: usize,
    },
}
