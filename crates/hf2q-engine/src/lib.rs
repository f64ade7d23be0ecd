//! Stage 8: sequences, KV pages, steps and sampling.
//!
//! In: a backend, a plan with its weights, and token ids of any number of sequences. Out: logits, and tokens drawn
//! from them. This crate alone owns state between steps.

mod cache;
mod engine;
mod error;
mod generate;
mod needs;
mod options;
mod pages;
mod prefix;
pub mod sample;
mod sequence;
mod stats;

pub use engine::{Engine, LogitRows, SequenceId, Work};
pub use error::EngineError;
pub use generate::{Finish, Generation, Request};
pub use needs::{GroupNeeds, Needs};
pub use options::{Budget, CacheOptions, EngineOptions, WindowPolicy};
pub use sample::{SampleError, Sampler, Sampling};
pub use stats::{CacheStats, GroupStats};
