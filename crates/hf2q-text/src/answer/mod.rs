//! Answers as they stream: text, thoughts and tool calls told apart.
//!
//! A model writes thoughts and calls between markers of its own notation. Here that notation is read as it arrives,
//! whatever way the text is cut, and only what is certain is passed on: the beginning of a marker is held back, and
//! what turns out to be no call stays text.

mod call;
mod detect;
mod gemma;
mod json_call;
mod lexer;
mod parser;
mod plain;
mod tools;
mod xml;

pub use detect::AnswerFormat;
pub use parser::{AnswerParser, ParserOptions};
pub use plain::tools_as_text;
pub use tools::{Tool, ToolSet};
pub use xml::is_plain_text;

/// How a model writes its thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Thinking {
    /// `<think>` … `</think>`: Qwen 3, DeepSeek R1 and many others.
    Tags,
    /// `<|channel>thought` … `<channel|>`: Gemma 4.
    Channel,
}

impl Thinking {
    /// What a thought begins with, and what it ends with.
    pub fn markers(self) -> (&'static str, &'static str) {
        match self {
            Self::Tags => ("<think>", "</think>"),
            Self::Channel => ("<|channel>", "<channel|>"),
        }
    }
}

/// How a model writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolSyntax {
    /// `<|tool_call>call:name{key:<|"|>text<|"|>,n:1}<tool_call|>`: Gemma 4.
    Gemma4,
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Qwen, Hermes.
    Hermes,
    /// `<tool_call><function=name><parameter=key>text</parameter></function></tool_call>`: Qwen 3 Coder, Qwen 3.5.
    Xml,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}]` or `[TOOL_CALLS]name[ARGS]{…}`: Mistral.
    Mistral,
    /// An answer that is `{"name": …, "parameters": …}`, alone, after `<|python_tag|>` or in a fence: Llama 3, Gemma 3.
    Json,
}

/// A piece of an answer. Neighbours of one kind are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// Text of a thought.
    Reasoning(String),
    /// A call begins. Its arguments follow.
    Call {
        /// Its place among the calls of the answer, from 0.
        index: usize,
        /// Unique within a conversation if the prefix that the parser was given is.
        id: String,
        /// The function.
        name: String,
    },
    /// More of the arguments' JSON text. The pieces of a call, joined, are one JSON object unless the answer was cut.
    Arguments {
        /// The call.
        index: usize,
        /// JSON text.
        text: String,
    },
}

/// Appends a piece to a list of deltas, joined with the last one where both are of one kind.
pub(crate) fn append(out: &mut Vec<Delta>, delta: Delta) {
    match (out.last_mut(), &delta) {
        (_, Delta::Content(new) | Delta::Reasoning(new) | Delta::Arguments { text: new, .. })
            if new.is_empty() => {}
        (Some(Delta::Content(last)), Delta::Content(new))
        | (Some(Delta::Reasoning(last)), Delta::Reasoning(new)) => last.push_str(new),
        (Some(Delta::Arguments { index: a, text: last }), Delta::Arguments { index: b, text: new })
            if a == b =>
        {
            last.push_str(new);
        }
        _ => out.push(delta),
    }
}
