//! `/v1/chat/completions`.

use serde_json::{Value as Json, json};

use crate::support::{Answer, demo};

/// The text and the end of one choice, out of chunks.
fn joined(answer: &Answer, choice: usize) -> (String, Json) {
    let mut text = String::new();
    let mut finish = Json::Null;
    for chunk in answer.chunks() {
        for c in chunk["choices"].as_array().unwrap().iter().filter(|c| c["index"] == choice) {
            assert_eq!(finish, Json::Null, "nothing follows the end");
            text += c["delta"]["content"].as_str().unwrap_or_default();
            finish = c["finish_reason"].clone();
        }
    }
    (text, finish)
}

#[test]
fn whole_and_streamed_answers_are_equal() {
    let whole = demo().chat("Tell me about the sea.", json!({ "max_tokens": 24 }));
    assert_eq!(whole.status, 200, "{whole:?}");
    let json = whole.json();
    assert_eq!(json["object"], "chat.completion");
    assert_eq!(json["choices"][0]["message"]["role"], "assistant");
    let text = json["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
    let streamed = demo().chat(
        "Tell me about the sea.",
        json!({ "max_tokens": 24, "stream": true, "stream_options": { "include_usage": true } }),
    );
    assert_eq!(streamed.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(joined(&streamed, 0), (text.to_owned(), json["choices"][0]["finish_reason"].clone()));
    let chunks = streamed.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], json["usage"]["prompt_tokens"]);
    assert_eq!(last["usage"]["completion_tokens"], json["usage"]["completion_tokens"]);
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c["usage"].is_null() && c.get("usage").is_some()));
}
