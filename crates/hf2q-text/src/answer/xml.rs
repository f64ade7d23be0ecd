//! Calls in tags: `<function=name>`, then `<parameter=key>`, text and `</parameter>` for each argument, `</function>`.

use serde_json::Value as Json;

use super::call::{Calls, Verdict};
use super::gemma::{is_json, json_string};
use super::lexer::{Mark, Unit};

/// Reads one call. Arguments are passed on one by one.
#[derive(Clone, Debug)]
pub(super) struct XmlCall {
    at: At,
    name: String,
    key: String,
    text: String,
    arguments: usize,
    started: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    Name,
    Between,
    Key,
    Value,
}

impl XmlCall {
    /// `in_function`: its opening tag was read.
    pub(super) fn new(in_function: bool) -> Self {
        Self {
            at: if in_function { At::Name } else { At::Start },
            name: String::new(),
            key: String::new(),
            text: String::new(),
            arguments: 0,
            started: false,
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    pub(super) fn push(&mut self, unit: Unit, calls: &mut Calls<'_>) -> Verdict {
        match (self.at, unit) {
            (At::Start, Unit::Mark(Mark::FunctionOpen, _)) => self.at = At::Name,
            (At::Start | At::Between, Unit::Char(c)) if c.is_whitespace() => {}
            (At::Name, Unit::Char('>')) => {
                if !calls.start(self.name.trim()) {
                    return Verdict::NotACall;
                }
                self.started = true;
                calls.arguments("{");
                self.at = At::Between;
            }
            (At::Name, Unit::Char(c)) => self.name.push(c),
            (At::Between, Unit::Mark(Mark::ParameterOpen, _)) => {
                self.key.clear();
                self.at = At::Key;
            }
            (At::Between, Unit::Mark(Mark::FunctionClose, _)) => {
                calls.arguments("}");
                return Verdict::Done;
            }
            (At::Key, Unit::Char('>')) => {
                self.text.clear();
                self.at = At::Value;
            }
            (At::Key, Unit::Char(c)) => self.key.push(c),
            (At::Value, Unit::Mark(Mark::ParameterClose, _)) => {
                self.argument(calls);
                self.at = At::Between;
            }
            (At::Value, Unit::Char(c)) => self.text.push(c),
            (At::Value, Unit::Mark(_, text)) => self.text.push_str(text),
            _ if !self.started => return Verdict::NotACall,
            _ => {
                calls.arguments("}");
                return Verdict::DoneBefore;
            }
        }
        Verdict::More
    }

    fn argument(&mut self, calls: &mut Calls<'_>) {
        // One line break on each side belongs to the notation.
        let text = self.text.strip_prefix('\n').unwrap_or(&self.text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let key = self.key.trim();
        let tool = calls.tools.get(self.name.trim());
        let schema = tool.and_then(|t| t.parameters.get("properties")?.get(key));
        let value = value(text, schema);
        let comma = if self.arguments > 0 { "," } else { "" };
        calls.arguments(&format!("{comma}{}:{value}", json_string(key)));
        self.arguments += 1;
    }
}

/// Whether a value of this schema is written as plain text in tags, rather than as JSON.
pub fn is_plain_text(schema: &Json) -> bool {
    let strings = |list: &Json| list.as_array().is_some_and(|e| e.iter().all(Json::is_string));
    has_type(schema, "string")
        || schema.get("enum").is_some_and(strings)
        || schema.get("const").is_some_and(Json::is_string)
}

fn has_type(schema: &Json, name: &str) -> bool {
    match schema.get("type") {
        Some(Json::String(t)) => t == name,
        Some(Json::Array(list)) => list.iter().any(|t| t == name),
        _ => false,
    }
}

/// A value as JSON: text where the schema says so, else what it reads as.
fn value(text: &str, schema: Option<&Json>) -> String {
    let is_text = schema.is_some_and(is_plain_text);
    let null = text.trim() == "null" && schema.is_some_and(|s| has_type(s, "null"));
    if is_json(text) && (null || !is_text) { text.trim().to_owned() } else { json_string(text) }
}
