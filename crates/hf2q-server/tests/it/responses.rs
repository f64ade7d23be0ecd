//! `/v1/responses`.

use serde_json::{Value as Json, json};

use crate::support::{Answer, demo, with};

fn respond(more: Json) -> Answer {
    let base =
        json!({ "model": "demo", "input": "Tell me about rain.", "max_output_tokens": 16, "temperature": 0 });
    demo().post("/v1/responses", &with(base, more))
}

#[test]
fn a_response_has_its_text_and_counts() {
    let answer = respond(json!({ "instructions": "Be short.", "metadata": { "a": "b" }, "store": true }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    assert_eq!(json["object"], "response");
    assert_eq!(json["output"][0]["type"], "message");
    assert!(!json["output"][0]["content"][0]["text"].as_str().unwrap().is_empty());
    assert_eq!(
        (&json["metadata"]["a"], &json["store"], &json["instructions"]),
        (&json!("b"), &json!(false), &json!("Be short."))
    );
    let usage = &json["usage"];
    assert_eq!(
        usage["total_tokens"].as_u64(),
        Some(usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap())
    );
    let cut = respond(json!({ "max_output_tokens": 2, "logit_bias": { "1": -100, "106": -100 } })).json();
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[test]
fn events_tell_the_same_as_the_whole() {
    let whole = respond(json!({ "include": ["message.output_text.logprobs"] })).json();
    let streamed = respond(json!({ "include": ["message.output_text.logprobs"], "stream": true }));
    let events: Vec<(String, Json)> = streamed
        .events()
        .into_iter()
        .map(|(name, data)| (name, serde_json::from_str(&data).unwrap()))
        .collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    let last = events.last().unwrap();
    assert!(["response.completed", "response.incomplete"].contains(&last.0.as_str()));
    for (i, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(i)));
    }
    let text: String = events
        .iter()
        .filter(|(n, _)| n == "response.output_text.delta")
        .map(|(_, e)| e["delta"].as_str().unwrap())
        .collect();
    let part = &whole["output"][0]["content"][0];
    assert_eq!(part["text"], text);
    let finished = &last.1["response"]["output"][0]["content"][0];
    assert_eq!(finished["text"], text);
    assert_eq!(finished["logprobs"], part["logprobs"]);
    assert!(!part["logprobs"].as_array().unwrap().is_empty());
}

#[test]
fn earlier_turns_are_part_of_the_input() {
    let answer = respond(json!({ "input": [
        { "role": "user", "content": [{ "type": "input_text", "text": "What is the weather?" }] },
        { "type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"place\":\"here\"}" },
        { "type": "function_call_output", "call_id": "c1", "output": "rain" },
    ], "tools": [{ "type": "function", "name": "weather", "parameters": { "type": "object", "properties": { "place": { "type": "string" } } } }], "tool_choice": "none" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        respond(json!({ "previous_response_id": "resp_1" })).json()["error"]["param"],
        "previous_response_id"
    );
}
