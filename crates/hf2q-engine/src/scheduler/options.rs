//! How jobs share an engine, and which are taken.

use std::time::Duration;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::job::{Job, Pooling, Task};

/// How jobs share an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Jobs that wait for their first row. More are [rejected](Rejected::QueueFull).
    pub queue: usize,
    /// Rows of a step while answers are under way: the larger, the sooner prompts are done and the longer the pauses between
    /// tokens. At most the engine's rows, which prompts get where no answer waits.
    pub busy_rows: usize,
}

/// The largest jobs a scheduler takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Tokens of one job, prompt and answer together: the context, or what all pages hold if that is less. (The last token
    /// of an answer is drawn, not stored: it is one more.)
    pub tokens: usize,
    /// Jobs that are computed at the same time: the engine's sequences, but no more than half the rows of a step (so that
    /// answers leave prompts the other half) and than its logit rows.
    pub running: usize,
    /// Jobs that wait.
    pub queue: usize,
    /// Token ids are below this.
    pub vocabulary: usize,
    /// Whether prompts can become vectors.
    pub embeddings: bool,
}

impl JobLimits {
    pub(super) fn new(engine: &Engine, options: SchedulerOptions) -> Result<Self, EngineError> {
        let sizes = engine.options();
        for (what, found, max) in
            [("queue", options.queue, usize::MAX), ("busy_rows", options.busy_rows, sizes.rows)]
        {
            if found == 0 || found > max {
                return Err(EngineError::Size { what, found, max });
            }
        }
        Ok(Self {
            tokens: sizes.context.min(engine.cache().capacity()),
            running: sizes.sequences.min(sizes.logit_rows).min(sizes.rows / 2).max(1),
            queue: options.queue,
            vocabulary: engine.vocabulary().min(engine.tokens()),
            embeddings: engine.embeds(),
        })
    }

    /// Whether a job can be computed.
    pub(crate) fn check(&self, job: &Job) -> Result<(), EngineError> {
        let (wanted, context) = (job.prompt.len(), self.tokens);
        if wanted == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if wanted > context {
            return Err(EngineError::ContextFull { held: 0, wanted, context });
        }
        if let Some(&token) = job.prompt.iter().find(|&&t| t as usize >= self.vocabulary) {
            return Err(EngineError::Token { token, vocabulary: self.vocabulary });
        }
        match job.task {
            Task::Embed(Pooling::Mean | Pooling::Last) if !self.embeddings => {
                Err(EngineError::NoEmbedding { op: crate::engine::LAST_HIDDEN })
            }
            _ => Ok(()),
        }
    }
}

/// Why a job was not taken. Its sink got no event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// Too many jobs wait.
    #[error("{waiting} jobs wait, and no more than {max} may; try again in {} s", retry_after.as_secs())]
    QueueFull {
        /// Jobs that wait.
        waiting: usize,
        /// How many may.
        max: usize,
        /// When one of them is likely to have started, in whole seconds.
        retry_after: Duration,
    },
    /// The service is about to end, or has.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// No engine could compute the job: the prompt is empty, too long, or has tokens that the model does not know.
    #[error(transparent)]
    Invalid(#[from] EngineError),
}
