//! The routes of Anthropic.

pub(crate) mod answer;
pub(crate) mod messages;
