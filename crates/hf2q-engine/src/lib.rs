//! Stage 8: sequences, KV pages, steps, sampling, and the scheduler of many jobs.
//!
//! In: a backend, a plan with its weights, and token ids: of sequences ([`Engine`]), or of jobs ([`Scheduler`], and [`Service`],
//! the thread that owns one), with a [`Drafter`] that guesses tokens ahead, if there is one. Out: logits, and tokens drawn from
//! them. This crate alone owns state between steps.

mod cache;
mod constraint;
pub mod draft;
mod engine;
mod error;
mod job;
mod logprobs;
mod needs;
mod options;
mod pages;
mod prefix;
pub mod sample;
mod scheduler;
mod sequence;
mod service;
mod stats;

pub use constraint::{Constraint, ConstraintError, TokenSet};
pub use draft::control::{DraftDepth, DraftShape};
pub use draft::{DraftRequest, DraftTree, Drafter, ModelDrafter, Ngram, Seen};
pub use engine::{Engine, LogitRows, SequenceId, Work};
pub use error::EngineError;
pub use job::{Answer, DraftUse, Event, Finish, Job, Pooling, Sink, Task, Times, Usage};
pub use logprobs::Logprobs;
pub use needs::{GroupNeeds, Needs};
pub use options::{Budget, CacheOptions, EngineOptions, WindowPolicy};
pub use sample::{SampleError, Sampler, Sampling};
pub use scheduler::{
    DraftStats, Drafting, Histogram, JobId, JobLimits, Rejected, Scheduler, SchedulerOptions, SchedulerStats,
};
pub use service::{Service, Ticket};
pub use stats::{CacheStats, GroupStats};
