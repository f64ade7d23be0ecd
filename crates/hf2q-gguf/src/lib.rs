//! Stage 1: reads and writes GGUF files.
//!
//! In: a path. Out: typed metadata and tensors that point into the memory-mapped file; and the way back, a
//! streaming writer that leaves either the whole file or nothing. [`Edit`] changes metadata of files that exist.
//!
//! A file is data from a stranger. Every count, length and offset is checked against the length of the file
//! before it is used, memory grows only with bytes that were read, and each kind of damage has its own
//! [`GgufError`]. What [`Gguf::open`] accepts is sound as a whole: names are unique, every tensor lies inside the
//! file, is aligned and overlaps no other.
//!
//! Files are mapped, not read. If another process shortens a file while it is mapped, the operating system
//! answers the next access to the lost pages with a signal (`SIGBUS` on Unix) that ends this process; no check
//! here can prevent that. [`GgufWriter`] never does this to a reader: it writes a new file and renames it.

mod builder;
mod bytes;
mod cursor;
mod durable;
mod edit;
mod encode;
mod error;
mod extent;
mod file;
mod header;
mod magic;
mod map;
mod metadata;
mod same;
mod split;
mod tensor;
mod types;
mod value;
mod write;

pub use builder::GgufBuilder;
pub use bytes::Bytes;
pub use edit::{Change, Edit, FramedTensor};
pub use error::GgufError;
pub use file::Gguf;
pub use metadata::Metadata;
pub use same::same_file;
pub use tensor::{TensorInfo, TensorSpec};
pub use types::TensorType;
pub use value::{Array, Value};
pub use write::{GgufWriter, write_file};
