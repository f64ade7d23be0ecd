//! A call that is being read.

use super::gemma::GemmaCall;
use super::json_call::JsonCall;
use super::lexer::Unit;
use super::tools::ToolSet;
use super::xml::XmlCall;
use super::{Delta, append};

/// What has become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    More,
    /// It is complete.
    Done,
    /// It was complete before this unit, which is still to be read.
    DoneBefore,
    /// It is none: everything since it began is text.
    NotACall,
}

/// Where calls go: the answer's deltas, and who may be called.
pub(super) struct Calls<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) prefix: &'a str,
    /// Index of the next call.
    pub(super) next: usize,
    pub(super) out: &'a mut Vec<Delta>,
}

impl Calls<'_> {
    /// Begins a call if there is such a function.
    pub(super) fn start(&mut self, name: &str) -> bool {
        if self.tools.get(name).is_none() {
            return false;
        }
        let id = format!("{}{}", self.prefix, self.next);
        self.out.push(Delta::Call { index: self.next, id, name: name.to_owned() });
        self.next += 1;
        true
    }

    /// Adds to the arguments of the call begun last.
    pub(super) fn arguments(&mut self, text: &str) {
        append(self.out, Delta::Arguments { index: self.next - 1, text: text.to_owned() });
    }

    pub(super) fn argument_char(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }
}

/// A call in one of the notations.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Json(JsonCall),
    Gemma(GemmaCall),
    Xml(XmlCall),
}

impl Call {
    /// Takes a unit.
    pub(super) fn push(&mut self, unit: Unit, calls: &mut Calls<'_>) -> Verdict {
        match self {
            Self::Gemma(call) => call.push(unit, calls),
            Self::Xml(call) => call.push(unit, calls),
            Self::Json(call) => call.push(unit, calls),
        }
    }

    /// Whether its beginning was passed on, so that it is a call whatever follows.
    pub(super) fn is_started(&self) -> bool {
        match self {
            Self::Gemma(call) => call.is_started(),
            Self::Xml(call) => call.is_started(),
            Self::Json(call) => call.is_started(),
        }
    }

    /// Whether its function is known.
    pub(super) fn has_name(&self) -> bool {
        match self {
            Self::Json(call) => call.has_name(),
            _ => self.is_started(),
        }
    }
}
