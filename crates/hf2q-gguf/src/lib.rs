//! Stage 1: reads and writes GGUF files.
//!
//! In: a path. Out: typed metadata and tensors that point into the memory-mapped file.

mod bytes;
mod types;

pub use bytes::Bytes;
pub use types::TensorType;
