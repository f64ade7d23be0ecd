//! Calls that are JSON: `{"name": …, "arguments": …}`.

use serde_json::Value as Json;

use super::call::{Calls, Verdict};
use super::lexer::{Mark, Unit};

/// Reads one call, character by character. Members other than the name and the arguments are skipped.
#[derive(Clone, Debug)]
pub(super) struct JsonCall {
    at: At,
    name: Option<String>,
    arguments: Arguments,
    value: Value,
    /// Text of the key or value that is being read, where it is wanted whole.
    text: String,
    /// Arguments that came before the name.
    kept: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start {
        bare_name: bool,
    },
    /// A name that is not quoted, before its arguments.
    BareName,
    KeyOrEnd,
    Key,
    Colon,
    BeforeValue(Member),
    Value(Member),
    AfterValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Name,
    Arguments,
    Other,
    /// Arguments behind a name that is not quoted: nothing follows.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arguments {
    /// None so far.
    None,
    /// Read before the name.
    Kept,
    /// Passed on as they arrive.
    Passed,
}

/// Follows a JSON value to its end.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Inside,
    /// This character is the last.
    Last,
    /// The value ended before this character.
    Before,
}

impl Value {
    fn push(&mut self, c: char) -> Step {
        if self.in_string {
            let closes = c == '"' && !self.escaped;
            self.escaped = c == '\\' && !self.escaped;
            self.in_string = !closes;
            return if closes && self.depth == 0 { Step::Last } else { Step::Inside };
        }
        match c {
            '"' => self.in_string = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' if self.depth == 0 => return Step::Before,
            '}' | ']' => {
                self.depth -= 1;
                return if self.depth == 0 { Step::Last } else { Step::Inside };
            }
            ',' if self.depth == 0 => return Step::Before,
            c if self.depth == 0 && c.is_ascii_whitespace() => return Step::Before,
            _ => {}
        }
        Step::Inside
    }
}

impl JsonCall {
    /// `bare_name`: a name and its arguments without the object around them are accepted too.
    pub(super) fn new(bare_name: bool) -> Self {
        Self {
            at: At::Start { bare_name },
            name: None,
            arguments: Arguments::None,
            value: Value::default(),
            text: String::new(),
            kept: String::new(),
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.arguments == Arguments::Passed
    }

    pub(super) fn has_name(&self) -> bool {
        self.name.is_some()
    }

    pub(super) fn push(&mut self, unit: Unit, calls: &mut Calls<'_>) -> Verdict {
        match unit {
            Unit::Char(c) => self.char(c, calls),
            Unit::Mark(Mark::Arguments, _) if self.at == At::BareName => {
                self.at = At::BeforeValue(Member::Last);
                Verdict::More
            }
            // Inside a string the marker is text.
            Unit::Mark(_, text) if self.value.in_string || self.at == At::Key => {
                let verdicts = text.chars().map(|c| self.char(c, calls));
                verdicts.last().unwrap_or(Verdict::More)
            }
            Unit::Mark(..) => self.fail(),
        }
    }

    /// What does not belong here ends a call that has begun; before, it shows that there is none.
    fn fail(&self) -> Verdict {
        if self.is_started() { Verdict::DoneBefore } else { Verdict::NotACall }
    }

    fn char(&mut self, c: char, calls: &mut Calls<'_>) -> Verdict {
        if c.is_ascii_whitespace() && !matches!(self.at, At::Key | At::Value(_)) {
            return Verdict::More;
        }
        match (self.at, c) {
            (At::Start { .. }, '{') => self.at = At::KeyOrEnd,
            // The list around Mistral's calls.
            (At::Start { bare_name: true }, '[') => {}
            (At::Start { bare_name: true }, _) => {
                self.text.push(c);
                self.at = At::BareName;
            }
            (At::BareName, '{') => {
                self.at = At::BeforeValue(Member::Last);
                return self.char(c, calls);
            }
            (At::BareName, _) => self.text.push(c),
            (At::KeyOrEnd, '"') => {
                self.text = String::from('"');
                self.value.escaped = false;
                self.at = At::Key;
            }
            (At::KeyOrEnd | At::AfterValue, '}') => return self.end(calls),
            (At::AfterValue, ',') => self.at = At::KeyOrEnd,
            (At::Key, _) => return self.key(c),
            (At::Colon, ':') => self.at = At::BeforeValue(self.member()),
            (At::BeforeValue(member), _) => return self.first(member, c, calls),
            (At::Value(member), _) => return self.inside(member, c, calls),
            _ => return self.fail(),
        }
        Verdict::More
    }

    fn key(&mut self, c: char) -> Verdict {
        self.text.push(c);
        let closes = c == '"' && !self.value.escaped;
        self.value.escaped = c == '\\' && !self.value.escaped;
        if closes {
            self.at = At::Colon;
        }
        Verdict::More
    }

    /// What the member with the key in `text` is.
    fn member(&self) -> Member {
        match serde_json::from_str::<String>(&self.text).as_deref() {
            Ok("name") if self.name.is_none() => Member::Name,
            Ok("arguments" | "parameters") if self.arguments == Arguments::None => Member::Arguments,
            _ => Member::Other,
        }
    }

    /// The first character of a value.
    fn first(&mut self, member: Member, c: char, calls: &mut Calls<'_>) -> Verdict {
        if member == Member::Last {
            self.name = Some(std::mem::take(&mut self.text));
        }
        self.value = Value::default();
        self.text.clear();
        self.at = At::Value(member);
        if matches!(member, Member::Arguments | Member::Last) {
            self.arguments = Arguments::Kept;
            if c == '{'
                && let Some(name) = &self.name
            {
                if !calls.start(name) {
                    return Verdict::NotACall;
                }
                self.arguments = Arguments::Passed;
            }
        }
        self.inside(member, c, calls)
    }

    fn inside(&mut self, member: Member, c: char, calls: &mut Calls<'_>) -> Verdict {
        let passed = matches!(member, Member::Arguments | Member::Last) && self.is_started();
        let step = self.value.push(c);
        if step != Step::Before {
            if passed {
                calls.argument_char(c);
            } else if member != Member::Other {
                self.text.push(c);
            }
        }
        if step == Step::Inside {
            return Verdict::More;
        }
        self.at = At::AfterValue;
        let verdict = self.value_read(member, calls);
        match (verdict, step) {
            (Verdict::More, Step::Before) => self.char(c, calls),
            _ => verdict,
        }
    }

    /// A value is complete.
    fn value_read(&mut self, member: Member, calls: &mut Calls<'_>) -> Verdict {
        match member {
            Member::Last => return if self.is_started() { Verdict::Done } else { Verdict::NotACall },
            Member::Name => match serde_json::from_str::<String>(&self.text) {
                Ok(name) => self.name = Some(name),
                Err(_) => return Verdict::NotACall,
            },
            Member::Arguments if !self.is_started() => {
                let Some(text) = object_text(&self.text) else { return Verdict::NotACall };
                self.kept = text;
            }
            Member::Arguments | Member::Other => return Verdict::More,
        }
        // Arguments that were read before the name, or that are a text which holds JSON, are passed on whole.
        let Some(name) = self.name.as_ref().filter(|_| self.arguments == Arguments::Kept) else {
            return Verdict::More;
        };
        if !calls.start(name) {
            return Verdict::NotACall;
        }
        calls.arguments(&std::mem::take(&mut self.kept));
        self.arguments = Arguments::Passed;
        Verdict::More
    }

    fn end(&mut self, calls: &mut Calls<'_>) -> Verdict {
        if self.is_started() {
            return Verdict::Done;
        }
        let Some(name) = &self.name else { return Verdict::NotACall };
        if !calls.start(name) {
            return Verdict::NotACall;
        }
        calls.arguments("{}");
        self.arguments = Arguments::Passed;
        Verdict::Done
    }
}

/// Arguments that are an object, nothing, or a text that holds an object.
fn object_text(text: &str) -> Option<String> {
    match serde_json::from_str::<Json>(text).ok()? {
        Json::Object(_) => Some(text.to_owned()),
        Json::Null => Some("{}".to_owned()),
        Json::String(inner) if inner.trim().is_empty() => Some("{}".to_owned()),
        Json::String(inner) => object_text(&inner),
        _ => None,
    }
}
