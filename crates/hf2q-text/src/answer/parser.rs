//! The streaming parser.

use super::call::{Call, Calls, Verdict};
use super::gemma::GemmaCall;
use super::json_call::JsonCall;
use super::lexer::{Lexer, Mark, Unit};
use super::tools::ToolSet;
use super::xml::XmlCall;
use super::{AnswerFormat, Delta, Thinking, ToolSyntax, append};
use crate::detokenize::Utf8Stream;
use crate::tokenizer::Tokenizer;

/// What an answer may hold.
#[derive(Clone, Debug, Default)]
pub struct ParserOptions {
    /// The functions that may be called. Calls of others, and all if there are none, are text.
    pub tools: ToolSet,
    /// The prompt ends inside a thought: see [`AnswerFormat::opens_thought`].
    pub in_thought: bool,
    /// What the ids of calls begin with; their number follows.
    pub id_prefix: String,
}

/// Tells text, thoughts and calls of one answer apart as its tokens arrive.
///
/// The deltas of an answer, joined, do not depend on how it was cut. What looks like a call but is none is content.
/// Breaks and spaces around thoughts and calls belong to the notation and are left out.
#[derive(Debug)]
pub struct AnswerParser {
    options: ParserOptions,
    thinking: Option<Thinking>,
    syntax: Option<ToolSyntax>,
    lexer: Lexer,
    utf8: Utf8Stream,
    state: State,
    /// White space that is content only if more text follows.
    blank: String,
    /// White space is left out until text comes.
    trim: bool,
    /// No content and no call came yet.
    at_start: bool,
    calls: usize,
    /// What an undecided call was read from.
    held: Vec<Unit>,
}

#[derive(Debug)]
enum State {
    Content,
    Thought,
    /// In the name of a channel.
    Channel(String),
    /// Behind three backticks.
    Fence(String),
    Call(Box<Call>),
    /// Behind a call, where its closing marker or another call may follow.
    Closing,
}

/// Longer texts that might become a call are none.
const MAX_HELD: usize = 1 << 18;
/// Longer names of channels and fences are none.
const MAX_NAME: usize = 32;
/// Words behind a fence that holds a call.
const FENCES: [&str; 5] = ["", "json", "tool_call", "tool_code", "tool_calls"];

impl AnswerParser {
    /// A parser for an answer in a model's notation, for tokens of `tokenizer`.
    pub fn new(tokenizer: &Tokenizer, format: &AnswerFormat, options: ParserOptions) -> Self {
        let is_control = |text: &str| tokenizer.special_id(text).is_some_and(|id| tokenizer.is_control(id));
        Self::with(format, options, is_control)
    }

    /// A parser for text in which all markers are spelled out, for [`AnswerParser::push_text`].
    pub fn of_text(format: &AnswerFormat, options: ParserOptions) -> Self {
        Self::with(format, options, |_| false)
    }

    fn with(format: &AnswerFormat, options: ParserOptions, is_control: impl Fn(&str) -> bool) -> Self {
        let syntax = Some(format.tools).filter(|_| !options.tools.is_empty());
        Self {
            thinking: format.thinking,
            syntax,
            lexer: Lexer::new(format.thinking, syntax, is_control),
            utf8: Utf8Stream::default(),
            state: if options.in_thought { State::Thought } else { State::Content },
            blank: String::new(),
            trim: options.in_thought,
            at_start: true,
            calls: 0,
            held: Vec::new(),
            options,
        }
    }

    /// Takes a token of the answer. `tokenizer` is the one that the parser was made for.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Vec<Delta> {
        let bytes = tokenizer.token_bytes(id);
        if tokenizer.is_control(id) {
            self.lexer.push_control(&String::from_utf8_lossy(bytes));
        } else {
            let mut text = String::new();
            self.utf8.push(bytes, &mut text);
            self.lexer.push(&text);
        }
        self.drain()
    }

    /// Takes text of the answer.
    pub fn push_text(&mut self, text: &str) -> Vec<Delta> {
        self.lexer.push(text);
        self.drain()
    }

    /// Ends the answer: what was held back. An undecided call is text; of a call that was passed on, what came of it.
    pub fn finish(mut self) -> Vec<Delta> {
        self.lexer.push(std::mem::take(&mut self.utf8).finish());
        self.lexer.flush();
        let mut out = self.drain();
        // What an undecided call was read from may hold others.
        while self.is_undecided() {
            self.give_back();
            self.take_as_text(&mut out);
            append_all(&mut out, self.drain());
        }
        if !self.trim {
            let blank = std::mem::take(&mut self.blank);
            self.emit(&blank, &mut out);
        }
        out
    }

    /// Whether a call has begun for certain and is not complete.
    pub fn in_call(&self) -> bool {
        matches!(&self.state, State::Call(call) if call.is_started())
    }

    /// Whether the answer is in a thought.
    pub fn in_thought(&self) -> bool {
        matches!(self.state, State::Thought | State::Channel(_))
    }

    /// Whether the answer is in what may become a call, or in one.
    pub fn maybe_in_call(&self) -> bool {
        matches!(self.state, State::Call(_) | State::Fence(_))
    }

    /// What an undecided call holds so far, behind the marker that it began with; `None` where none is undecided.
    pub fn undecided(&self) -> Option<String> {
        if !self.is_undecided() || !matches!(self.state, State::Call(_)) {
            return None;
        }
        let blank = |u: &&Unit| matches!(u, Unit::Char(c) if c.is_ascii_whitespace());
        let units: Vec<Unit> = self.held.iter().skip_while(blank).copied().collect();
        let skipped = match units.first() {
            Some(Unit::Mark(Mark::Fence, _)) => {
                units.iter().position(|u| *u == Unit::Char('\n')).map_or(0, |n| n + 1)
            }
            Some(Unit::Mark(Mark::CallOpen, _)) => 1,
            _ => 0,
        };
        let mut text = String::new();
        for unit in &units[skipped..] {
            match unit {
                Unit::Char(c) => text.push(*c),
                Unit::Mark(_, spelling) => text.push_str(spelling),
            }
        }
        Some(text)
    }

    /// Whether the call that is being read has named its function.
    pub fn has_name(&self) -> bool {
        matches!(&self.state, State::Call(call) if call.has_name())
    }

    /// How many calls began.
    pub fn calls(&self) -> usize {
        self.calls
    }

    fn is_undecided(&self) -> bool {
        match &self.state {
            State::Call(call) => !call.is_started(),
            State::Fence(_) | State::Channel(_) => true,
            _ => false,
        }
    }

    fn drain(&mut self) -> Vec<Delta> {
        let mut out = Vec::new();
        while let Some(unit) = self.lexer.units.pop_front() {
            self.unit(unit, &mut out);
        }
        out
    }

    fn unit(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        match &mut self.state {
            State::Content => self.content(unit, out),
            State::Thought => self.thought(unit, out),
            State::Channel(_) => self.channel(unit, out),
            State::Fence(_) => self.fence(unit, out),
            State::Call(_) => self.call(unit, out),
            State::Closing => self.closing(unit),
        }
    }

    fn content(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        match unit {
            Unit::Mark(Mark::ThoughtOpen, text) if text.is_empty() || self.at_start => {
                self.blank.clear();
                let channel = self.thinking == Some(Thinking::Channel);
                self.state = if channel { State::Channel(String::new()) } else { State::Thought };
                self.trim = true;
                self.held = vec![unit];
            }
            Unit::Mark(Mark::CallOpen | Mark::FunctionOpen, _) => self.open(unit),
            Unit::Mark(Mark::Fence, _) => {
                self.hold_blank(unit);
                self.state = State::Fence(String::new());
            }
            Unit::Char('{') if self.at_start && self.syntax == Some(ToolSyntax::Json) => self.open(unit),
            Unit::Char(c) => self.text(c, out),
            Unit::Mark(_, text) => text.chars().for_each(|c| self.text(c, out)),
        }
    }

    /// A character of content or of a thought.
    fn text(&mut self, c: char, out: &mut Vec<Delta>) {
        if c.is_ascii_whitespace() {
            if self.syntax.is_none() && self.thinking.is_none() {
                return append(out, Delta::Content(c.to_string()));
            }
            return self.blank.push(c);
        }
        let mut text = std::mem::take(&mut self.blank);
        if self.trim {
            text.clear();
        }
        self.trim = false;
        text.push(c);
        self.emit(&text, out);
    }

    fn emit(&mut self, text: &str, out: &mut Vec<Delta>) {
        if matches!(self.state, State::Thought) {
            return append(out, Delta::Reasoning(text.to_owned()));
        }
        self.at_start &= text.is_empty();
        append(out, Delta::Content(text.to_owned()));
    }

    fn thought(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        match unit {
            Unit::Mark(Mark::ThoughtClose, _) => {
                self.blank.clear();
                self.trim = true;
                self.state = State::Content;
            }
            Unit::Char(c) => self.text(c, out),
            Unit::Mark(_, text) => text.chars().for_each(|c| self.text(c, out)),
        }
    }

    /// The name of a channel ends with the line. A channel other than that of thoughts holds content.
    fn channel(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        let State::Channel(name) = &mut self.state else { return };
        match unit {
            Unit::Char('\n') => {
                let thought = name.trim() == "thought";
                self.state = if thought { State::Thought } else { State::Content };
            }
            Unit::Char(c) if name.len() < MAX_NAME => {
                name.push(c);
                return self.held.push(unit);
            }
            Unit::Mark(Mark::ThoughtClose, _) => self.state = State::Content,
            _ => {
                self.held.push(unit);
                self.give_back();
                return self.take_as_text(out);
            }
        }
        self.held.clear();
    }

    fn fence(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        let State::Fence(word) = &mut self.state else { return };
        self.held.push(unit);
        match unit {
            Unit::Char('\n') if FENCES.contains(&word.trim()) => self.state = self.call_state(unit),
            Unit::Char(c) if c != '\n' && word.len() < MAX_NAME => word.push(c),
            _ => {
                self.give_back();
                self.take_as_text(out);
            }
        }
    }

    /// A call may begin here, with this unit.
    fn open(&mut self, unit: Unit) {
        self.hold_blank(unit);
        self.state = self.call_state(unit);
        if unit == Unit::Char('{') {
            self.lexer.units.push_front(unit);
            self.held.pop();
        }
    }

    fn hold_blank(&mut self, unit: Unit) {
        let blank = std::mem::take(&mut self.blank);
        let blank = blank.chars().filter(|_| !self.trim).map(Unit::Char);
        self.held = blank.chain([unit]).collect();
    }

    fn call_state(&self, unit: Unit) -> State {
        let in_function = matches!(unit, Unit::Mark(Mark::FunctionOpen, _));
        State::Call(Box::new(match self.syntax {
            Some(ToolSyntax::Gemma4) => Call::Gemma(GemmaCall::new()),
            Some(ToolSyntax::Xml) => Call::Xml(XmlCall::new(in_function)),
            syntax => Call::Json(JsonCall::new(syntax == Some(ToolSyntax::Mistral))),
        }))
    }

    fn call(&mut self, unit: Unit, out: &mut Vec<Delta>) {
        let Self { options, calls, state, .. } = self;
        let State::Call(call) = state else { return };
        let mut sink = Calls { tools: &options.tools, prefix: &options.id_prefix, next: *calls, out };
        let verdict = call.push(unit, &mut sink);
        *calls = sink.next;
        let started = call.is_started();
        if started {
            self.held.clear();
            self.at_start = false;
        } else {
            self.held.push(unit);
        }
        match verdict {
            Verdict::More if self.held.len() < MAX_HELD => {}
            Verdict::Done | Verdict::DoneBefore if started => {
                self.state = State::Closing;
                if verdict == Verdict::DoneBefore {
                    self.lexer.units.push_front(unit);
                }
            }
            _ => {
                self.give_back();
                self.take_as_text(out);
            }
        }
    }

    /// Puts what an undecided call was read from back, to be read as text.
    fn give_back(&mut self) {
        for unit in self.held.drain(..).rev() {
            self.lexer.units.push_front(unit);
        }
        self.state = State::Content;
    }

    /// Takes the first unit that is no blank as text, so that it does not begin a call again.
    fn take_as_text(&mut self, out: &mut Vec<Delta>) {
        while let Some(unit) = self.lexer.units.pop_front() {
            match unit {
                Unit::Char(c) => self.text(c, out),
                Unit::Mark(_, text) => text.chars().for_each(|c| self.text(c, out)),
            }
            if !matches!(unit, Unit::Char(c) if c.is_ascii_whitespace()) {
                return;
            }
        }
    }

    fn closing(&mut self, unit: Unit) {
        let syntax = self.syntax;
        let json = syntax.is_some_and(|s| !matches!(s, ToolSyntax::Gemma4 | ToolSyntax::Xml));
        self.trim = true;
        match unit {
            Unit::Char(c) if c.is_ascii_whitespace() => {}
            Unit::Char(',' | ';' | ']') if json && syntax != Some(ToolSyntax::Hermes) => {}
            Unit::Char('{') if json => self.open(unit),
            Unit::Mark(Mark::CallClose | Mark::Fence, _) => self.state = State::Content,
            Unit::Mark(Mark::FunctionOpen, _) => self.open(unit),
            _ => {
                self.lexer.units.push_front(unit);
                self.state = State::Content;
            }
        }
    }
}

fn append_all(out: &mut Vec<Delta>, deltas: Vec<Delta>) {
    deltas.into_iter().for_each(|d| append(out, d));
}
