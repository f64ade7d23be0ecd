//! Stage 4: HuggingFace checkpoints in, GGUF files out.
//!
//! In: a folder with `config.json`, safetensors and tokenizer files. Out: one GGUF file, written through a
//! temporary file, in bounded memory.

mod checkpoint;
mod deviation;
mod encode;
mod error;
mod folder;
mod pipeline;
mod recipe;
mod record;
mod tokenizer;

pub use checkpoint::{Checkpoint, CheckpointTensor};
pub use deviation::Deviation;
pub use error::ConvertError;
pub use folder::Folder;
pub use pipeline::{Options, Progress, Summary, convert};
pub use recipe::Recipe;
pub use record::{Record, Why};
