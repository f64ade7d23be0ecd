//! Several models: listed, loaded, unloaded.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::support::{Demo, Running, chat, serve, with};
use hf2q_server::Settings;

fn status(server: &Running, id: &str) -> String {
    let list = server.get("/v1/models").json();
    let entry = list["data"].as_array().unwrap().iter().find(|e| e["id"] == id).cloned().unwrap();
    entry["status"]["value"].as_str().unwrap().to_owned()
}

fn ask(server: &Running, id: &str) -> u16 {
    let body = with(chat("x", json!({ "max_tokens": 1 })), json!({ "model": id }));
    server.post("/v1/chat/completions", &body).status
}

#[test]
fn models_are_loaded_when_they_are_asked_for_and_make_room() {
    let settings = Settings { models_memory: Some(10), ..Settings::default() };
    let models = ["a", "b", "org/c"].map(|id| Demo { id, bytes: 5, ..Demo::default() });
    let server = serve(settings, models.to_vec());
    assert_eq!(["a", "b", "org/c"].map(|id| status(&server, id)), ["unloaded"; 3]);
    assert_eq!([ask(&server, "a"), ask(&server, "b")], [200; 2]);
    assert_eq!(["a", "b", "org/c"].map(|id| status(&server, id)), ["loaded", "loaded", "unloaded"]);
    assert_eq!(ask(&server, "org/c"), 200);
    assert_eq!(["a", "b", "org/c"].map(|id| status(&server, id)), ["unloaded", "loaded", "loaded"]);
    assert_eq!(server.get("/v1/models/org/c").json()["id"], "org/c");
    assert_eq!(server.get("/v1/models/org%2Fc").json()["meta"]["n_ctx"], 512);
    assert_eq!(server.get("/v1/models/x").status, 404);
    let body = with(chat("x", json!({})), json!({ "model": "nope" }));
    let missing = server.post("/v1/chat/completions", &body);
    assert_eq!((missing.status, missing.json()["error"]["code"].as_str()), (404, Some("model_not_found")));
    assert_eq!(missing.json()["error"]["param"], "model");
}

#[test]
fn the_only_model_need_not_be_named() {
    let unnamed = || with(chat("x", json!({ "max_tokens": 1 })), json!({ "model": null }));
    let server = serve(Settings::default(), vec![Demo::default()]);
    let answer = server.post("/v1/chat/completions", &unnamed());
    assert_eq!((answer.status, answer.json()["model"].as_str()), (200, Some("demo")));
    let body = json!({ "max_tokens": 1, "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(server.post("/v1/messages", &body).json()["model"], "demo");
    assert_eq!(ask(&server, "other"), 404);
    let several = ["a", "b"].map(|id| Demo { id, ..Demo::default() });
    let refused = serve(Settings::default(), several.to_vec()).post("/v1/chat/completions", &unnamed());
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("model")));
}

#[test]
fn what_cannot_chat_is_listed_as_such_before_it_is_loaded() {
    let chats = [("a", None), ("b", Some(false)), ("c", Some(true))];
    let models = chats.map(|(id, chats)| Demo { id, chats, ..Demo::default() });
    let list = serve(Settings::default(), models.to_vec()).get("/v1/models").json();
    let found = [0, 1, 2].map(|i| list["data"][i]["meta"]["chat"].as_bool());
    assert_eq!(found, chats.map(|(_, chats)| chats));
}

#[test]
fn a_model_that_nobody_asks_for_is_unloaded() {
    let server = serve(
        Settings { idle: Some(Duration::from_millis(200)), ..Settings::default() },
        vec![Demo::default()],
    );
    assert_eq!(ask(&server, "demo"), 200);
    for _ in 0..300 {
        if status(&server, "demo") == "unloaded" {
            assert_eq!(ask(&server, "demo"), 200);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the model stays");
}

#[test]
fn a_model_that_cannot_be_loaded_says_so_and_no_more() {
    let server = serve(Settings::default(), vec![Demo { broken: true, ..Demo::default() }]);
    let answer = server.chat("x", json!({}));
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    assert!(!answer.body.contains("secret"), "{}", answer.body);
    assert_eq!(status(&server, "demo"), "failed");
    let anthropic =
        json!({ "model": "demo", "max_tokens": 1, "messages": [{ "role": "user", "content": "x" }] });
    let refused: Json = server.post("/v1/messages", &anthropic).json();
    assert_eq!(refused["error"]["type"], "overloaded_error");
}

#[test]
fn who_waits_too_long_for_a_model_is_told_to_come_again() {
    // The first model is in use and takes all the memory.
    let settings =
        Settings { models_memory: Some(5), load_patience: Duration::from_secs(2), ..Settings::default() };
    let models = ["a", "b"].map(|id| Demo { id, bytes: 5, context: 8192, sequences: 1, ..Demo::default() });
    let server = serve(settings, models.to_vec());
    // Loading may take longer than a request waits.
    assert!((0..20).any(|_| ask(&server, "a") == 200));
    let more = json!({ "model": "a", "stream": true, "logit_bias": { "1": -100, "106": -100 } });
    let body = with(chat("x", json!({})), more).to_string();
    let mut open = server.open("POST", "/v1/chat/completions", &[], &body);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut open.0, &mut line).unwrap();
    assert!(line.contains("200"), "{line}");
    assert_eq!(ask(&server, "b"), 503);
    drop(open);
    let ready = (0..100).any(|_| ask(&server, "b") == 200);
    assert!(ready);
}

#[test]
fn a_request_that_is_gone_makes_room_when_its_work_ends() {
    // Rendering goes on for a while after its client is gone.
    let slow = "{% for i in range(8) %}{% for j in range(100000) %}{% endfor %}{% endfor %}x";
    let settings =
        Settings { models_memory: Some(5), load_patience: Duration::from_secs(10), ..Settings::default() };
    let models = [("a", Some(slow)), ("b", None)];
    let models = models.map(|(id, template)| Demo { id, template, bytes: 5, ..Demo::default() });
    let server = serve(settings, models.to_vec());
    assert!((0..20).any(|_| ask(&server, "a") == 200));
    let body = with(chat("x", json!({ "max_tokens": 1 })), json!({ "model": "a" })).to_string();
    let open = server.open("POST", "/v1/chat/completions", &[], &body);
    std::thread::sleep(Duration::from_millis(100));
    drop(open);
    assert_eq!(ask(&server, "b"), 200);
}
