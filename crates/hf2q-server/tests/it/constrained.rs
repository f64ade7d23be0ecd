//! Answers that must have a form, and calls of tools.

use serde_json::{Value as Json, json};

use crate::support::{Answer, demo, with};

fn content(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn schema() -> Json {
    json!({ "type": "object", "properties": { "ok": { "type": "boolean" }, "n": { "enum": [1, 2, 3] } },
        "required": ["ok", "n"], "additionalProperties": false })
}

#[test]
fn a_schema_is_kept_to_wherever_it_stands() {
    for format in [
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema() } }),
        json!({ "type": "json_schema", "schema": schema() }),
        json!({ "type": "json_object", "schema": schema() }),
    ] {
        let answer = demo().chat("Give me JSON.", json!({ "response_format": format, "max_tokens": 60 }));
        let value: Json = serde_json::from_str(&content(&answer)).unwrap();
        assert!(
            value["ok"].is_boolean() && value["n"].is_u64() && value.as_object().unwrap().len() == 2,
            "{value}"
        );
    }
    let bad =
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": "strange" } } });
    let refused = demo().chat("x", json!({ "response_format": bad }));
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].as_str()),
        (400, Some("response_format.json_schema.schema"))
    );
    let missing = demo().chat("x", json!({ "response_format": { "type": "json_schema" } }));
    assert_eq!(missing.status, 400);
}

#[test]
fn choices_and_expressions_are_kept_to() {
    let choice = demo().chat("Yes or no?", json!({ "structured_outputs": { "choice": ["yes", "no"] } }));
    assert!(["yes", "no"].contains(&&*content(&choice)));
    let regex = demo().chat("A date?", json!({ "structured_outputs": { "regex": "[0-9]{4}-[0-9]{2}" } }));
    let text = content(&regex);
    assert!(text.len() == 7 && text.as_bytes()[4] == b'-', "{text}");
    assert_eq!(demo().chat("x", json!({ "structured_outputs": { "regex": "(" } })).status, 400);
    assert_eq!(demo().chat("x", json!({ "structured_outputs": {} })).status, 400);
}

fn tools() -> Json {
    let tool = |name: &str| {
        let parameters = json!({ "type": "object", "properties": { "unit": { "enum": ["c", "f"] } },
            "required": ["unit"], "additionalProperties": false });
        json!({ "type": "function", "function": { "name": name, "description": "d", "parameters": parameters } })
    };
    json!([tool("weather"), tool("time")])
}

/// The calls of a message, and how it ended.
fn calls(answer: &Answer) -> (Vec<(String, Json)>, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let calls = json["choices"][0]["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    let call = |c: &Json| {
        assert!(c["id"].as_str().unwrap().starts_with("call_") && c["type"] == "function");
        let arguments = c["function"]["arguments"].as_str().expect("arguments are a string");
        (c["function"]["name"].as_str().unwrap().to_owned(), serde_json::from_str(arguments).unwrap())
    };
    (calls.iter().map(call).collect(), json["choices"][0]["finish_reason"].as_str().unwrap().to_owned())
}

#[test]
fn a_required_or_named_call_is_made_and_its_arguments_keep_to_the_schema() {
    let base = json!({ "tools": tools(), "max_tokens": 120, "parallel_tool_calls": false });
    let (made, finish) =
        calls(&demo().chat("Weather?", with(base.clone(), json!({ "tool_choice": "required" }))));
    assert_eq!((made.len(), finish.as_str()), (1, "tool_calls"));
    let named = json!({ "tool_choice": { "type": "function", "function": { "name": "time" } } });
    let answer = demo().chat("Weather?", with(base.clone(), named.clone()));
    let (made, _) = calls(&answer);
    assert_eq!(made[0].0, "time");
    assert!(["c", "f"].contains(&made[0].1["unit"].as_str().unwrap()));
    // The stream tells the same, with one id and index for each call.
    let streamed = demo().chat("Weather?", with(with(base, named), json!({ "stream": true })));
    let mut arguments = String::new();
    let mut heads = Vec::new();
    let mut finish = Json::Null;
    for chunk in streamed.chunks() {
        let choice = &chunk["choices"][0];
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], 0);
            heads.extend(call["id"].as_str().map(str::to_owned));
            arguments += call["function"]["arguments"].as_str().unwrap();
        }
        finish = choice["finish_reason"].clone();
    }
    assert_eq!((heads.len(), finish), (1, json!("tool_calls")));
    assert_eq!(serde_json::from_str::<Json>(&arguments).unwrap(), made[0].1);
}

#[test]
fn calls_of_one_answer_have_ids_and_indexes_of_their_own() {
    // Where no token may end the answer, a call is followed by another one.
    let text =
        json!({ "content": "<eos><turn|><|tool_response>", "parse_special": true, "add_special": false });
    let ends = demo().post("/tokenize", &text).json()["tokens"].as_array().unwrap().clone();
    let never: serde_json::Map<String, Json> = ends.iter().map(|id| (id.to_string(), json!(-100))).collect();
    let body = json!({ "tools": tools(), "tool_choice": "required", "max_tokens": 160, "temperature": 0, "logit_bias": never });
    let whole = demo().chat("Weather and time?", body.clone()).json();
    let whole = whole["choices"][0]["message"]["tool_calls"].as_array().unwrap().clone();
    assert!(whole.len() >= 2, "{whole:?}");
    let streamed = demo().chat("Weather and time?", with(body, json!({ "stream": true })));
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for chunk in streamed.chunks() {
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if let Some(id) = call["id"].as_str() {
                assert_eq!(index, calls.len(), "a new call has the next index");
                let name = call["function"]["name"].as_str().unwrap();
                calls.push((id.to_owned(), name.to_owned(), String::new()));
            }
            calls[index].2 += call["function"]["arguments"].as_str().unwrap();
        }
    }
    let ids: std::collections::BTreeSet<&str> = calls.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!((calls.len(), ids.len()), (whole.len(), whole.len()));
    for ((_, name, arguments), whole) in calls.iter().zip(&whole) {
        let function = &whole["function"];
        assert_eq!(
            (function["name"].as_str(), function["arguments"].as_str()),
            (Some(&**name), Some(&**arguments))
        );
    }
}

#[test]
fn without_a_call_the_answer_ends_as_text() {
    let answer = demo().chat("Hello.", json!({ "tools": tools(), "tool_choice": "none", "max_tokens": 12 }));
    let (made, finish) = calls(&answer);
    assert!(made.is_empty() && finish != "tool_calls");
    for (more, param) in [
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (
            json!({ "tools": tools(), "tool_choice": { "type": "function", "function": { "name": "x" } } }),
            "tool_choice",
        ),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
    ] {
        let refused = demo().chat("x", more.clone());
        assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some(param)), "{more}");
    }
}

#[test]
fn our_own_calls_can_be_handed_back_with_their_results() {
    let base = json!({ "tools": tools(), "max_tokens": 120, "tool_choice": "required", "parallel_tool_calls": false });
    let message = demo().chat("Weather?", base.clone()).json()["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let mut counts = Vec::new();
    for content in [json!(null), json!(""), json!("absent")] {
        let mut turn = message.clone();
        turn["content"] = content.clone();
        if content == "absent" {
            turn.as_object_mut().unwrap().remove("content");
        }
        let body = json!({ "model": "demo", "max_tokens": 4, "tools": tools(), "messages": [
            { "role": "user", "content": "Weather?" }, turn, { "role": "tool", "tool_call_id": id, "content": "rain" } ] });
        let answer = demo().post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        counts.push(answer.json()["usage"]["prompt_tokens"].clone());
    }
    assert!(counts.iter().all(|c| *c == counts[0]), "{counts:?}");
}

#[test]
fn anthropics_tools_are_called_too() {
    let tool = json!({ "name": "weather", "input_schema": { "type": "object", "properties": { "unit": { "enum": ["c"] } }, "required": ["unit"] } });
    let body = json!({ "model": "demo", "max_tokens": 120, "messages": [{ "role": "user", "content": "Weather?" }],
        "tools": [tool], "tool_choice": { "type": "any", "disable_parallel_tool_use": true }, "seed": 1 });
    let answer = demo().post("/v1/messages", &body).json();
    let block = &answer["content"][0];
    assert_eq!(
        (&block["type"], &block["name"], &block["input"]["unit"]),
        (&json!("tool_use"), &json!("weather"), &json!("c")),
        "{answer}"
    );
    assert_eq!(answer["stop_reason"], "tool_use");
    let streamed = demo().post("/v1/messages", &with(body, json!({ "stream": true })));
    let pieces: String = streamed
        .events()
        .iter()
        .filter_map(|(_, data)| {
            serde_json::from_str::<Json>(data).unwrap()["delta"]["partial_json"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(serde_json::from_str::<Json>(&pieces).unwrap()["unit"], "c");
}
