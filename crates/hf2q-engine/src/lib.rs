//! Stage 8: sequences, KV pages, steps and sampling.
//!
//! In: a backend, a plan with its weights, and token ids of any number of sequences. Out: logits, and tokens drawn
//! from them. This crate alone owns state between steps.

mod engine;
mod error;
mod generate;
mod pages;
pub mod sample;
mod sequence;

pub use engine::{Engine, EngineOptions, LogitRows, SequenceId, Work};
pub use error::EngineError;
pub use generate::{Finish, Generation, Request};
pub use sample::{SampleError, Sampler, Sampling};
