//! The routes of OpenAI.

pub(crate) mod chat;
pub(crate) mod chat_answer;
pub(crate) mod completion_answer;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod response_answer;
pub(crate) mod responses;
