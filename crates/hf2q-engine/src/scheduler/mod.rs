//! Many jobs on one engine.

mod stats;

use std::time::Duration;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::job::{Job, Sink};
use crate::options::EngineOptions;

pub use stats::{Histogram, SchedulerStats};

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
    /// Tokens of one job, prompt and answer together: the context, or what all pages hold if that is less.
    pub tokens: usize,
    /// Jobs that are computed at the same time.
    pub running: usize,
    /// Jobs that wait.
    pub queue: usize,
}

/// Names a job of one scheduler. Numbers are not given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(u64);

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

/// Computes many jobs on one engine, step by step. It waits for nothing: whoever owns it calls [`Scheduler::step`].
pub struct Scheduler {
    engine: Engine,
    options: SchedulerOptions,
}

impl Scheduler {
    /// Takes an engine without sequences.
    ///
    /// # Errors
    /// `busy_rows` or `queue` is 0, or `busy_rows` is more than the engine's rows.
    pub fn new(engine: Engine, options: SchedulerOptions) -> Result<Self, EngineError> {
        Ok(Self { engine, options })
    }

    /// What the engine was opened with.
    pub fn engine_options(&self) -> EngineOptions {
        self.engine.options()
    }

    /// The largest jobs it takes.
    pub fn limits(&self) -> JobLimits {
        JobLimits { tokens: self.engine.options().context, running: 1, queue: self.options.queue }
    }

    /// Puts a job at the end of the queue.
    ///
    /// # Errors
    /// The queue is full, or the job can never be computed.
    pub fn submit(&mut self, job: Job, sink: Sink) -> Result<JobId, Rejected> {
        drop((job, sink));
        Err(Rejected::ShuttingDown)
    }

    /// Ends a job: it gets no further rows. Jobs that have ended are not an error.
    pub fn cancel(&mut self, id: JobId) {
        let _ = id;
    }

    /// Computes one step for the jobs that are under way. `false`: there was nothing to do.
    pub fn step(&mut self) -> bool {
        false
    }

    /// Counts since it was made, and the jobs and pages of now.
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats { cache: self.engine.cache_stats(), ..SchedulerStats::default() }
    }
}
