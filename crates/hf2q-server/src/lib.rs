//! Stage 11: requests over HTTP become jobs of the engine, and what it draws becomes answers.
//!
//! In: requests as the clients of OpenAI and Anthropic send them, and models that a [`Source`] loads. Out: answers, whole or as
//! they are made. A request is read field by field: what would have no effect is refused by name. The engine's thread makes text
//! of tokens (`tap`), so that an answer ends with the token that completes a stop string; the tasks here only shape JSON.

#![forbid(unsafe_code)]

mod answers;
mod anthropic;
mod app;
mod ask;
mod constraint;
mod conversation;
mod error;
mod fields;
mod http;
mod ids;
mod log;
mod metrics;
mod model;
mod models;
mod openai;
mod openapi;
mod page;
mod routes;
mod server;
mod settings;
mod speculation;
mod tap;
#[cfg(test)]
mod tests;
mod tokens;

pub use error::ServerError;
pub use log::Log;
pub use model::Loaded;
pub use models::Source;
pub use server::Server;
pub use settings::{ApiKey, Settings};

/// What answers were made by; equal answers need an equal one.
pub(crate) const FINGERPRINT: &str = concat!("hf2q-", env!("CARGO_PKG_VERSION"));
