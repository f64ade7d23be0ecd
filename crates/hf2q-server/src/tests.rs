//! Requests that nobody would send: every reader refuses or takes them, and none breaks.

use serde_json::{Map, Value as Json, json};

use crate::ask::DRAWING;
use crate::error::ApiError;
use crate::settings::Settings;
use crate::{anthropic, openai};

/// A generator of numbers that needs no crate (Steele, Lea and Flood 2014: splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// A value out of words that mean something to some reader.
    fn value(&mut self, depth: usize) -> Json {
        let kinds = if depth == 0 { 6 } else { 9 };
        match self.below(kinds) {
            0 => Json::Null,
            1 => json!(self.below(2) == 0),
            2 => json!([-1.0, 0.0, 0.5, 1.0, 2.0, 1e308, -1e308][self.below(7)]),
            3 => json!([i64::MIN, -1, 0, 1, 7, i64::MAX][self.below(6)]),
            4 => json!(u64::MAX),
            5 => json!(self.pick(WORDS)),
            6 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let pairs = (0..self.below(5)).map(|_| (self.pick(KEYS).to_owned(), self.value(depth - 1)));
                Json::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

const WORDS: &[&str] = &[
    "",
    "x",
    "\u{0}",
    "user",
    "assistant",
    "system",
    "tool",
    "text",
    "function",
    "auto",
    "none",
    "required",
    "any",
    "json_schema",
    "json_object",
    "input_text",
    "tool_use",
    "tool_result",
    "thinking",
    "enabled",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "ephemeral",
    "{}",
    "{\"a\":",
    "c1",
    "10",
    "4294967296",
];

const KEYS: &[&str] = &[
    "type",
    "role",
    "content",
    "text",
    "id",
    "name",
    "function",
    "arguments",
    "parameters",
    "schema",
    "json_schema",
    "tool_calls",
    "tool_call_id",
    "call_id",
    "tool_use_id",
    "input",
    "output",
    "input_schema",
    "format",
    "effort",
    "budget_tokens",
    "include_usage",
    "regex",
    "choice",
    "grammar",
    "cache_control",
    "7",
    "x",
];

fn check(read: impl Fn(&Json) -> Option<ApiError>, names: &[&[&str]], (base, seed): (&Json, u64)) {
    let names: Vec<&str> = names.concat();
    let mut numbers = Numbers(seed);
    let mut refused = 0;
    for _ in 0..4000 {
        let mut body = base.clone();
        for _ in 0..1 + numbers.below(3) {
            let name = numbers.pick(&names);
            body[name] = numbers.value(4);
        }
        if let Some(error) = read(&body) {
            refused += 1;
            let param = error.param.unwrap_or_else(|| panic!("no field is named for {body}"));
            let root = param.split(['.', '[']).next().unwrap();
            assert!(names.contains(&root), "{param} is no field of {body}");
        }
    }
    assert!(refused > 1000);
}

#[test]
fn readers_of_openai_name_a_field_and_never_break() {
    let chat = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    check(|b| openai::chat::Chat::read(b).err(), &[openai::chat::FIELDS, DRAWING], (&chat, 1));
    let settings = Settings::default();
    let read = |b: &Json| openai::completions::Completion::read(b, &settings).err();
    let prompt = json!({ "model": "m", "prompt": "x" });
    check(read, &[openai::completions::FIELDS, DRAWING], (&prompt, 2));
    let input = json!({ "model": "m", "input": "x" });
    check(|b| openai::responses::Request::read(b).err(), &[openai::responses::FIELDS, DRAWING], (&input, 3));
}

#[test]
fn readers_of_anthropic_name_a_field_and_never_break() {
    let count = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let mut body = count.clone();
    body["max_tokens"] = json!(1);
    check(|b| anthropic::messages::Request::read(b).err(), &[anthropic::messages::FIELDS], (&body, 4));
    let known = anthropic::messages::COUNT_FIELDS;
    check(|b| anthropic::messages::Request::read_count(b).err(), &[known], (&count, 5));
}
