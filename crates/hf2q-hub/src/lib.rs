//! Stage 1: a HuggingFace repository becomes a local checkpoint folder.
//!
//! In: a [`Repository`] (`ORG/NAME` or `ORG/NAME@REVISION`) and a [`HubConfig`]. Out: a [`Snapshot`], whose folder
//! holds what a conversion reads: configuration, tokenizer, safetensors. Nothing else of the repository is loaded.
//!
//! The cache is laid out as Python's `huggingface_hub` does it, so each finds what the other has loaded:
//!
//! ```text
//! CACHE/models--ORG--NAME/blobs/HASH              contents, named by SHA-256 (large files) or git's SHA-1
//!                         blobs/HASH.incomplete   a part; the next attempt goes on where it ends
//!                         refs/REVISION           the commit a branch or tag stood at
//!                         snapshots/COMMIT/NAME   links to the contents
//!                         .no_exist/COMMIT/NAME   the commit has no such file
//! CACHE/.locks/models--ORG--NAME/HASH.lock        held while a content is loaded
//! ```
//!
//! A snapshot is linked when all its contents are there and checked, and its revision is noted last: an interrupted
//! download leaves `.incomplete` files and whole contents, never a folder that looks complete and is not.
//!
//! What the server says is not trusted: names, hashes, sizes and redirects are checked before use. The token goes to
//! the configured endpoint alone, and passes no network in the clear. This crate reads no environment, except that `ureq` looks for a proxy there if
//! [`HubConfig::environment_proxy`] says so.

#![forbid(unsafe_code)]

mod cache;
mod config;
mod content;
mod download;
mod error;
mod fetch;
mod http;
mod index;
mod listing;
mod lock;
mod part;
mod progress;
mod refusal;
mod repository;
mod retry;
mod select;
mod space;
mod store;
mod text;

pub use config::{HubConfig, Patience, Token};
pub use error::HubError;
pub use fetch::{Hub, Snapshot};
pub use progress::{Progress, Status};
pub use repository::Repository;
pub use store::Stored;
