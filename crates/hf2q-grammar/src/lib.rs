//! Stage 10: constrained answers.
//!
//! In: a JSON schema, a grammar, a list of choices, or tools with the rule which of them are to be called; the
//! vocabulary of a model. Out: [`Constraint`]s that tell the engine, token by token, what an answer may hold.
//!
//! What cannot be enforced is refused when the request comes, with the keyword that is in the way: an answer is never
//! free text in place of what was asked for.

#![forbid(unsafe_code)]

mod answer;
mod cache;
mod error;
mod gbnf;
mod grammars;
mod lark;
mod matcher;
mod schema;
mod spec;
mod tools;
mod vocabulary;

pub use answer::{AnswerRules, Output, Rules};
pub use error::GrammarError;
pub use grammars::Grammars;
pub use hf2q_engine::Constraint;
pub use spec::Spec;
pub use tools::ToolChoice;
