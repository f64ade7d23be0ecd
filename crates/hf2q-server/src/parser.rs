//! The text of an answer becomes what is shown, what was thought, and calls of tools.

use crate::ask::Ask;
use crate::model::Model;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// Text for the reader.
    Content(String),
    /// Text of a thought.
    Reasoning(String),
    /// A call begins. Calls are counted from 0.
    Call { index: usize, name: String },
    /// A piece of the arguments of a call, which are JSON.
    Arguments { index: usize, text: String },
}

/// How the answers to one request are read.
#[derive(Clone, Debug)]
pub(crate) struct Style {}

impl Style {
    pub(crate) fn new(_model: &Model, _ask: &Ask, _prompt: &[u32]) -> Self {
        Self {}
    }

    /// Whether control tokens must be seen.
    pub(crate) fn needs_markers(&self) -> bool {
        false
    }

    /// Reads one answer.
    pub(crate) fn parser(&self) -> Parser {
        Parser {}
    }
}

/// Reads one answer as it comes.
pub(crate) struct Parser {}

impl Parser {
    pub(crate) fn push(&mut self, text: String) -> Vec<Delta> {
        if text.is_empty() { Vec::new() } else { vec![Delta::Content(text)] }
    }

    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        Vec::new()
    }
}
