//! Outputs that another implementation recorded.

mod fixture;
mod run;

pub use fixture::{Chunk, Golden, Perplexity, Prompt};
pub use run::{Findings, PromptFindings, Runner};
