//! Calls in Gemma 4's notation: `call:name{key:<|"|>text<|"|>,n:1,list:[true,null]}`, read as JSON.

use super::call::{Calls, Verdict};
use super::lexer::{Mark, Unit};

/// Reads one call, unit by unit.
#[derive(Clone, Debug)]
pub(super) struct GemmaCall {
    at: At,
    /// Objects (`}`) and lists (`]`) that are open, by what closes them.
    open: Vec<char>,
    text: String,
    started: bool,
    /// A comma is due before the next key or item.
    comma: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// `call:`, of which this many characters were read.
    Prefix(usize),
    Name,
    Key,
    QuotedKey,
    Colon,
    Value,
    /// Between quote markers.
    Quoted,
    /// Between ordinary quotes, which the notation does not have but models use.
    JsonString {
        escaped: bool,
    },
    /// A number or a word.
    Bare,
    AfterValue,
}

const PREFIX: &[u8] = b"call:";
/// Deeper nesting is no call that any template writes.
const MAX_DEPTH: usize = 128;

impl GemmaCall {
    pub(super) fn new() -> Self {
        Self { at: At::Prefix(0), open: Vec::new(), text: String::new(), started: false, comma: false }
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    pub(super) fn push(&mut self, unit: Unit, calls: &mut Calls<'_>) -> Verdict {
        match (unit, self.at) {
            (Unit::Mark(Mark::Quote, _), _) => self.quote(calls),
            (Unit::Mark(_, text), At::Quoted | At::QuotedKey) => {
                for c in text.chars() {
                    self.char(c, calls);
                }
                Verdict::More
            }
            (Unit::Mark(..), _) if !self.started => Verdict::NotACall,
            (Unit::Mark(..), _) => {
                self.close_all(calls);
                Verdict::DoneBefore
            }
            (Unit::Char(c), _) => self.char(c, calls),
        }
    }

    fn quote(&mut self, calls: &mut Calls<'_>) -> Verdict {
        match self.at {
            At::Key if self.text.trim().is_empty() => self.at = At::QuotedKey,
            At::QuotedKey => {
                self.key(calls);
                self.at = At::Colon;
            }
            At::Value => {
                self.comma(calls);
                calls.argument_char('"');
                self.at = At::Quoted;
            }
            At::Quoted => {
                calls.argument_char('"');
                self.at = At::AfterValue;
            }
            _ if !self.started => return Verdict::NotACall,
            // A quote where none belongs is passed over.
            _ => {}
        }
        Verdict::More
    }

    fn char(&mut self, c: char, calls: &mut Calls<'_>) -> Verdict {
        match self.at {
            At::Prefix(n) if c.is_ascii_whitespace() && n == 0 => {}
            At::Prefix(n) if char::from(PREFIX[n]) == c => {
                self.at = if n + 1 == PREFIX.len() { At::Name } else { At::Prefix(n + 1) };
            }
            At::Prefix(_) => return Verdict::NotACall,
            At::Name if c == '{' => {
                if !calls.start(self.text.trim()) {
                    return Verdict::NotACall;
                }
                self.started = true;
                self.text.clear();
                self.enter('{', calls);
            }
            At::Name | At::QuotedKey => self.text.push(c),
            At::Key => return self.key_char(c, calls),
            At::Colon if c == ':' => self.at = At::Value,
            At::Colon => {}
            At::Value => return self.value_char(c, calls),
            At::Quoted => calls.arguments(&escaped(c)),
            At::JsonString { escaped } => {
                calls.argument_char(c);
                let closes = c == '"' && !escaped;
                let inside = At::JsonString { escaped: c == '\\' && !escaped };
                self.at = if closes { At::AfterValue } else { inside };
            }
            At::Bare if matches!(c, ',' | '}' | ']') => {
                self.bare(calls);
                return self.after(c, calls);
            }
            At::Bare => self.text.push(c),
            At::AfterValue => return self.after(c, calls),
        }
        Verdict::More
    }

    fn key_char(&mut self, c: char, calls: &mut Calls<'_>) -> Verdict {
        match c {
            ':' => {
                self.key(calls);
                self.at = At::Value;
            }
            '}' if self.text.trim().is_empty() => return self.after(c, calls),
            _ => self.text.push(c),
        }
        Verdict::More
    }

    /// Writes the key that was read.
    fn key(&mut self, calls: &mut Calls<'_>) {
        self.comma(calls);
        let text = std::mem::take(&mut self.text);
        let text = if self.at == At::QuotedKey { text.as_str() } else { text.trim().trim_matches('"') };
        calls.arguments(&format!("{}:", json_string(text)));
    }

    fn comma(&mut self, calls: &mut Calls<'_>) {
        if std::mem::take(&mut self.comma) {
            calls.argument_char(',');
        }
    }

    fn value_char(&mut self, c: char, calls: &mut Calls<'_>) -> Verdict {
        let in_list = self.open.last() == Some(&']');
        match c {
            c if c.is_ascii_whitespace() => {}
            '{' | '[' if self.open.len() == MAX_DEPTH => {
                self.close_all(calls);
                return Verdict::Done;
            }
            '{' | '[' => self.enter(c, calls),
            '"' => {
                self.comma(calls);
                calls.argument_char(c);
                self.at = At::JsonString { escaped: false };
            }
            ',' | '}' | ']' => {
                if !in_list {
                    calls.arguments("null");
                }
                return self.after(c, calls);
            }
            _ => {
                self.comma(calls);
                self.text = String::from(c);
                self.at = At::Bare;
            }
        }
        Verdict::More
    }

    fn enter(&mut self, c: char, calls: &mut Calls<'_>) {
        self.comma(calls);
        calls.argument_char(c);
        self.open.push(if c == '{' { '}' } else { ']' });
        self.at = if c == '{' { At::Key } else { At::Value };
    }

    /// A number or a word is complete: what JSON knows as it is, anything else as a text.
    fn bare(&mut self, calls: &mut Calls<'_>) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match text {
            "None" => calls.arguments("null"),
            _ if is_json(text) => calls.arguments(text),
            _ => calls.arguments(&json_string(text)),
        }
    }

    /// A character behind a value.
    fn after(&mut self, c: char, calls: &mut Calls<'_>) -> Verdict {
        match c {
            ',' => {
                self.comma = true;
                self.at = if self.open.last() == Some(&'}') { At::Key } else { At::Value };
            }
            '}' | ']' => {
                self.comma = false;
                // What closes something further out closes all within.
                let Some(place) = self.open.iter().rposition(|o| *o == c) else { return Verdict::More };
                while self.open.len() > place {
                    let closer = self.open.pop().expect("it is longer than `place`");
                    calls.argument_char(closer);
                }
                self.at = At::AfterValue;
                if self.open.is_empty() {
                    return Verdict::Done;
                }
            }
            _ => {}
        }
        Verdict::More
    }

    /// The call ends early: its JSON is made whole as far as that is possible.
    fn close_all(&mut self, calls: &mut Calls<'_>) {
        match self.at {
            At::Quoted | At::JsonString { .. } => calls.argument_char('"'),
            At::Bare => self.bare(calls),
            At::Value | At::Colon if self.open.last() == Some(&'}') => calls.arguments("null"),
            _ => {}
        }
        while let Some(closer) = self.open.pop() {
            calls.argument_char(closer);
        }
    }
}

/// Whether a text is one JSON value, its numbers of any size.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A text as a JSON string with its quotes.
pub(super) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A character inside a JSON string.
fn escaped(c: char) -> String {
    let text = json_string(c.encode_utf8(&mut [0; 4]));
    text[1..text.len() - 1].to_owned()
}
