//! `/v1/messages`.

use serde_json::{Value as Json, json};

use crate::support::{Answer, demo, with};

fn ask(more: Json) -> Answer {
    let base = json!({ "model": "demo", "max_tokens": 16, "temperature": 0, "system": "Be kind.",
        "messages": [{ "role": "user", "content": "Tell me about the moon." }] });
    demo().post("/v1/messages", &with(base, more))
}

fn events(answer: &Answer) -> Vec<(String, Json)> {
    answer.events().into_iter().map(|(name, data)| (name, serde_json::from_str(&data).unwrap())).collect()
}

#[test]
fn whole_and_streamed_messages_are_equal() {
    let answer = ask(json!({}));
    assert_eq!(answer.status, 200, "{answer:?}");
    let whole = answer.json();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let streamed = ask(json!({ "stream": true }));
    let events = events(&streamed);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let joined: String = events.iter().filter_map(|(_, e)| e["delta"]["text"].as_str()).collect();
    assert_eq!(joined, text);
    let delta = &events[events.len() - 2].1;
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    assert!(events[0].1["message"]["usage"]["output_tokens"] == 0);
}

#[test]
fn a_stop_sequence_is_named() {
    let text = ask(json!({ "max_tokens": 30 })).json()["content"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = text.chars().skip(6).take(3).collect();
    let cut = ask(json!({ "max_tokens": 30, "stop_sequences": [stop] })).json();
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    let expected = &text[..text.find(&stop).unwrap()];
    assert_eq!(cut["content"][0]["text"].as_str().unwrap_or_default(), expected);
}

#[test]
fn tokens_are_counted_without_an_answer() {
    let body = json!({ "model": "demo", "system": "Be kind.",
        "messages": [{ "role": "user", "content": "Tell me about the moon." }] });
    let counted = demo().post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap();
    let usage = ask(json!({})).json()["usage"].clone();
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(number("input_tokens") + number("cache_read_input_tokens"), counted);
}

#[test]
fn errors_have_anthropics_shape() {
    for (more, kind, status) in [
        (json!({ "max_tokens": null }), "invalid_request_error", 400),
        (json!({ "model": "nope" }), "not_found_error", 404),
        (json!({ "unknown": 1 }), "invalid_request_error", 400),
        (
            json!({ "messages": [{ "role": "user", "content": "sea ".repeat(600) }] }),
            "invalid_request_error",
            400,
        ),
    ] {
        let answer = ask(more);
        let json = answer.json();
        assert_eq!(
            (answer.status, &json["type"], &json["error"]["type"]),
            (status, &json!("error"), &json!(kind))
        );
    }
}
