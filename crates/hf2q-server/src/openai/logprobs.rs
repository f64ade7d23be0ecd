//! Probabilities in the two shapes that OpenAI's routes give them.

use hf2q_engine::Logprobs;
use hf2q_text::Tokenizer;
use serde_json::{Value as Json, json};

use crate::tap::Shown;

/// JSON knows no infinity; this is what OpenAI shows of what is impossible.
const IMPOSSIBLE: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { IMPOSSIBLE }
}

/// Tokens of the chat route: each with its bytes, for a token may be a part of a character.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: &[Shown]) -> Vec<Json> {
    let entry = |id: u32, logprob: f32| {
        json!({
            "token": tokenizer.token_text(id), "logprob": finite(logprob), "bytes": tokenizer.token_bytes(id),
        })
    };
    let token = |shown: &Shown| {
        let mut token = entry(shown.id, shown.logprobs.logprob);
        let top: Vec<Json> = shown.logprobs.top.iter().map(|(id, l)| entry(*id, *l)).collect();
        token["top_logprobs"] = Json::Array(top);
        token
    };
    tokens.iter().map(token).collect()
}

/// Tokens of the old route, in four lists.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    tokens: Vec<Json>,
    logprobs: Vec<Json>,
    top: Vec<Json>,
    offsets: Vec<Json>,
}

impl Lists {
    /// A token, its place in the text, and its probabilities; the first one of a prompt has none.
    pub(crate) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        id: u32,
        offset: usize,
        logprobs: Option<&Logprobs>,
    ) {
        self.tokens.push(json!(name(tokenizer, id)));
        self.offsets.push(json!(offset));
        self.logprobs.push(logprobs.map_or(Json::Null, |l| json!(finite(l.logprob))));
        let top = logprobs.map(|l| {
            // Two tokens that look the same have one place; the more likely one comes first.
            let mut map = serde_json::Map::new();
            for (id, logprob) in &l.top {
                map.entry(name(tokenizer, *id)).or_insert(json!(finite(*logprob)));
            }
            Json::Object(map)
        });
        self.top.push(top.unwrap_or(Json::Null));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(crate) fn json(&mut self) -> Json {
        let lists = std::mem::take(self);
        json!({
            "tokens": lists.tokens, "token_logprobs": lists.logprobs, "top_logprobs": lists.top,
            "text_offset": lists.offsets,
        })
    }
}

/// A token as text; bytes that are no whole character are spelled out, as OpenAI does it.
fn name(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = tokenizer.token_bytes(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, b| format!("{text}\\x{b:02x}")),
    }
}
