//! Text and control tokens to characters and markers.

use std::collections::VecDeque;

use super::{Thinking, ToolSyntax};

/// What a marker stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    ThoughtOpen,
    ThoughtClose,
    CallOpen,
    CallClose,
    /// Around the strings of Gemma 4's calls.
    Quote,
    FunctionOpen,
    FunctionClose,
    ParameterOpen,
    ParameterClose,
    /// Between a name and its arguments.
    Arguments,
    /// Three backticks.
    Fence,
}

/// What the parser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Char(char),
    /// A marker with its spelling if that is text; control tokens are never shown.
    Mark(Mark, &'static str),
}

#[derive(Clone, Copy, Debug)]
struct Marker {
    text: &'static str,
    mark: Mark,
    /// It is a control token of the vocabulary, so the same characters as text mean nothing.
    control: bool,
}

/// Finds the markers of a notation.
#[derive(Clone, Debug)]
pub(super) struct Lexer {
    markers: Vec<Marker>,
    /// The beginning of a marker.
    pending: String,
    /// No marker holds anything but ASCII, and this bounds what is held back.
    pub(super) units: VecDeque<Unit>,
}

impl Lexer {
    /// `is_control` tells whether a spelling is that of a control token.
    pub(super) fn new(
        thinking: Option<Thinking>,
        tools: Option<ToolSyntax>,
        is_control: impl Fn(&str) -> bool,
    ) -> Self {
        let thoughts = thinking.map(|t| {
            let (open, close) = t.markers();
            [(open, Mark::ThoughtOpen), (close, Mark::ThoughtClose)]
        });
        let calls = tools.map_or(&[][..], markers);
        let all = thoughts.iter().flatten().chain(calls);
        let markers = all.map(|(text, mark)| Marker { text, mark: *mark, control: is_control(text) });
        Self { markers: markers.collect(), pending: String::new(), units: VecDeque::new() }
    }

    /// Takes text.
    pub(super) fn push(&mut self, text: &str) {
        for c in text.chars() {
            self.pending.push(c);
            self.resolve();
        }
    }

    /// Takes a control token by its spelling.
    pub(super) fn push_control(&mut self, text: &str) {
        // A control token ends what came before: markers are not completed across it.
        self.flush();
        if let Some(marker) = self.markers.iter().find(|m| m.control && m.text == text) {
            self.units.push_back(Unit::Mark(marker.mark, ""));
        }
    }

    /// Releases what was held back.
    pub(super) fn flush(&mut self) {
        self.units.extend(self.pending.drain(..).map(Unit::Char));
    }

    fn resolve(&mut self) {
        while let Some(first) = self.pending.chars().next() {
            let mut texts = self.markers.iter().filter(|m| !m.control);
            let starts = |m: &&Marker| m.text.starts_with(self.pending.as_str());
            match texts.find(starts) {
                Some(marker) if marker.text == self.pending => {
                    self.units.push_back(Unit::Mark(marker.mark, marker.text));
                    self.pending.clear();
                }
                Some(_) => return,
                None => {
                    self.units.push_back(Unit::Char(first));
                    self.pending.remove(0);
                }
            }
        }
    }
}

/// The markers of calls. None is the beginning of another.
fn markers(syntax: ToolSyntax) -> &'static [(&'static str, Mark)] {
    match syntax {
        ToolSyntax::Gemma4 => {
            &[("<|tool_call>", Mark::CallOpen), ("<tool_call|>", Mark::CallClose), ("<|\"|>", Mark::Quote)]
        }
        ToolSyntax::Hermes => &[("<tool_call>", Mark::CallOpen), ("</tool_call>", Mark::CallClose)],
        ToolSyntax::Xml => &[
            ("<tool_call>", Mark::CallOpen),
            ("</tool_call>", Mark::CallClose),
            ("<function=", Mark::FunctionOpen),
            ("</function>", Mark::FunctionClose),
            ("<parameter=", Mark::ParameterOpen),
            ("</parameter>", Mark::ParameterClose),
        ],
        ToolSyntax::Mistral => &[("[TOOL_CALLS]", Mark::CallOpen), ("[ARGS]", Mark::Arguments)],
        ToolSyntax::Json => &[("<|python_tag|>", Mark::CallOpen), ("```", Mark::Fence)],
    }
}
