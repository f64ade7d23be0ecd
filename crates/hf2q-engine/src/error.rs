//! What can go wrong between a token and its logits.

use hf2q_plan::{BackendError, StepError};

use crate::constraint::ConstraintError;
use crate::sample::SampleError;

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The sequence would grow beyond the context it was opened with.
    #[error(
        "the context is full: {held} tokens are held, {wanted} more do not fit into {context}; raise --context or shorten the prompt"
    )]
    ContextFull {
        /// Tokens the sequence holds.
        held: usize,
        /// Tokens to be added.
        wanted: usize,
        /// Largest number of tokens.
        context: usize,
    },
    /// A size the engine cannot be opened with.
    #[error("{what} is {found}, accepted are 1 to {max}")]
    Size {
        /// Which of [`crate::EngineOptions`].
        what: &'static str,
        /// Its value.
        found: usize,
        /// The largest that the others leave room for.
        max: usize,
    },
    /// A budget into which not even one page of each group fits.
    #[error("a KV cache of {found} bytes holds no page; the smallest has {least} bytes")]
    Budget {
        /// Bytes allowed.
        found: usize,
        /// Bytes of one page of each group.
        least: usize,
    },
    /// An answer needs something to answer.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// All places for sequences are taken.
    #[error("all {max} sequences are in use")]
    TooManySequences {
        /// Sequences the engine was opened for.
        max: usize,
    },
    /// No sequence has this number; those of removed sequences are given out again.
    #[error("sequence {0} does not exist")]
    UnknownSequence(usize),
    /// Work of one step must name each sequence once.
    #[error("sequence {0} is named twice in one step")]
    SequenceTwice(usize),
    /// A step needs a value for every row and column of each input of the plan.
    #[error("the inputs given for sequence {sequence} have {found:?} values, expected {expected:?}")]
    Inputs {
        /// The sequence.
        sequence: usize,
        /// Values of each input that was given.
        found: Vec<usize>,
        /// Values that its rows need of each.
        expected: Vec<usize>,
    },
    /// A draft that is no tree, or not the one that was computed.
    #[error("the draft for sequence {sequence} cannot be computed: {why}")]
    Tree {
        /// The sequence that it continues.
        sequence: usize,
        /// What is wrong with it.
        why: String,
    },
    /// What a shorter sequence would need is gone.
    #[error(
        "sequence {sequence} of {held} tokens cannot be cut to {len}: {}",
        if len > held { "it has fewer" } else { "pages that its next row would see were dropped" }
    )]
    Rewind {
        /// The sequence.
        sequence: usize,
        /// Tokens it holds.
        held: usize,
        /// Tokens it was to hold.
        len: usize,
    },
    /// A drafter cannot go on.
    #[error("the drafter ({drafter}) cannot go on: {why}")]
    Drafter {
        /// Its name.
        drafter: String,
        /// What is wrong.
        why: String,
    },
    /// The cache pool has no page left.
    #[error("the KV cache of group {group} is full: all {pages} pages are in use")]
    OutOfPages {
        /// Name of the group.
        group: String,
        /// Pages in its pool.
        pages: usize,
    },
    /// A step with no rows, or more than the engine was opened for.
    #[error("a step of {found} {what} was asked for, accepted are 1 to {max}")]
    StepSize {
        /// Rows or logit rows.
        what: &'static str,
        /// How many were asked for.
        found: usize,
        /// How many fit.
        max: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocabulary}")]
    Token {
        /// The id.
        token: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// The engine built a step that no backend accepts.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// No token could be drawn.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// An answer could not be kept within its constraint.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The model's plan has no operation whose output could be pooled.
    #[error("the model gives no embeddings: its plan has no operation {op}")]
    NoEmbedding {
        /// The operation that was looked for.
        op: &'static str,
    },
    /// Hidden states that have no direction, so that nothing of length 1 can be made of them.
    #[error(
        "the prompt has no vector: its hidden states are not finite numbers, or all are zero; the weights are damaged, or the backend shows no hidden states"
    )]
    NoVector,
    /// The system gave no thread for the engine.
    #[error("the engine's thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
    /// A defect: a constraint panicked, and its job has failed; or the engine did, all jobs that ran have failed, and it goes
    /// on with empty caches.
    #[error("the engine panicked: {why}")]
    Panicked {
        /// The panic's message.
        why: String,
    },
}

impl EngineError {
    /// A panic that was caught.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked { why: text.unwrap_or_else(|| "without a message".to_owned()) }
    }
}
