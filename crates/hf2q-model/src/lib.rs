//! Stage 6: models.
//!
//! In: a GGUF file. Out: a [`Model`]: its configuration and weights, checked, which records its layers as operations
//! for every backend. This crate knows no backend.

pub mod assistant;
mod attention;
mod builder;
pub mod eagle3;
mod error;
mod feed_forward;
mod gemma3;
mod gemma4;
mod llama;
mod model;
mod options;
mod qwen3;
pub mod synthetic;
pub mod toy;

pub use error::{ModelError, Warning, WrongTensor};
pub use model::{Model, StoredTensor};
pub use options::RecordOptions;
