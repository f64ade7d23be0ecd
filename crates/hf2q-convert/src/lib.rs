//! Stage 4: HuggingFace checkpoints or GGUF files in, GGUF files of other types out.
//!
//! In: a folder with `config.json`, safetensors and tokenizer files, or a GGUF file. Out: one GGUF file or a split set,
//! written through temporary files, in bounded memory: a [`Source`] is opened, a [`Plan`] gives each tensor its type,
//! and [`Plan::write`] reads, encodes and writes at the same time.

mod checkpoint;
mod deviation;
mod encoding;
mod error;
mod folder;
mod importance;
mod ordered;
mod pipeline;
mod plan;
mod recipe;
mod record;
pub mod report;
mod rows;
mod scales;
mod source;
mod tokenizer;
mod tokens;
mod verify;

pub use checkpoint::{Checkpoint, CheckpointTensor};
pub use deviation::Deviation;
pub use error::ConvertError;
pub use folder::Folder;
pub use importance::{Entry, Importance, ImportanceError, Weights};
pub use plan::{Options, Plan, Progress, Summary, convert};
pub use recipe::{Candidate, Choice, Facts, Overrides, Pattern, Recipe, choose, natural_type, place};
pub use record::{Record, Why};
pub use scales::QuantizedError;
pub use source::Source;
pub use verify::{ModelCheck, Problem, Verification, Verified, check_model, verify};
