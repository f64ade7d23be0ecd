//! Who may ask, and what happens to what is no request.

use serde_json::{Value as Json, json};

use crate::support::{Demo, Running, chat, demo, serve};
use hf2q_server::{ApiKey, Settings};

fn status(server: &Running, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    let body =
        if method == "POST" { chat("x", json!({ "max_tokens": 1 })).to_string() } else { String::new() };
    server.open(method, path, headers, &body).answer().status
}

#[test]
fn a_preflight_is_answered_without_a_key_and_a_request_is_not() {
    let settings = Settings {
        keys: vec![ApiKey::new("first").unwrap(), ApiKey::new("second").unwrap()],
        cors: vec!["https://page.example".into()],
        ..Settings::default()
    };
    let server = serve(settings, vec![Demo::default()]);
    let path = "/v1/chat/completions";
    let origin = ("origin", "https://page.example");
    let asked = [
        origin,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    let preflight = server.open("OPTIONS", path, &asked, "").answer();
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://page.example"));
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization"));
    assert_eq!(status(&server, "POST", path, &[origin]), 401);
    assert_eq!(status(&server, "POST", path, &[origin, ("authorization", "Bearer wrong")]), 401);
    let allowed = server.open(
        "POST",
        path,
        &[origin, ("authorization", "Bearer second")],
        &chat("x", json!({ "max_tokens": 1 })).to_string(),
    );
    let allowed = allowed.answer();
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("https://page.example"))
    );
    assert_eq!(status(&server, "GET", "/health", &[]), 200);
    assert_eq!(status(&server, "GET", "/v1/models", &[("x-api-key", "first")]), 200);
    assert_eq!(status(&server, "OPTIONS", path, &[("origin", "https://other.example")]), 403);
    let refused = server.open("POST", "/v1/messages", &[], "{}").answer().json();
    assert_eq!(
        (&refused["type"], &refused["error"]["type"]),
        (&json!("error"), &json!("authentication_error"))
    );
}

#[test]
fn other_names_and_other_pages_are_refused() {
    let server = demo();
    assert_eq!(status(server, "GET", "/v1/models", &[("host", "evil.example")]), 403);
    assert_eq!(status(server, "GET", "/v1/models", &[("host", "localhost:1")]), 200);
    assert_eq!(status(server, "POST", "/v1/chat/completions", &[("origin", "https://evil.example")]), 403);
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(page.header("access-control-allow-origin"), None);
}

#[test]
fn what_is_no_request_is_refused_and_nothing_breaks() {
    let server = serve(Settings { max_body: 4096, ..Settings::default() }, vec![Demo::default()]);
    let path = "/v1/chat/completions";
    let deep = format!("{{\"model\": \"demo\", \"messages\": {}{}}}", "[".repeat(1000), "]".repeat(1000));
    for (body, expected) in [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        ("null", 400),
        ("\"x\"", 400),
        ("{\"model\": \"demo\", \"messages\": \"x\"}", 400),
        ("{\"model\": 7, \"messages\": []}", 400),
        ("\u{0}\u{1}", 400),
        (&*deep, 400),
        (&*"x".repeat(5000), 413),
    ] {
        let answer = server.open("POST", path, &[], body).answer();
        assert_eq!(answer.status, expected, "{body:.40}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get(path).status, 405);
    assert_eq!(server.open("POST", "/health", &[], "").answer().status, 405);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
    assert_eq!(server.get("/ready").status, 200);
}

#[test]
fn every_field_is_refused_if_its_type_is_wrong_and_never_breaks_the_server() {
    let wrong =
        [json!({ "x": {} }), json!([[[]]]), json!(-1e308), json!("\u{0}"), json!(true), json!(u64::MAX)];
    for (path, base) in [
        ("/v1/chat/completions", chat("x", json!({ "max_tokens": 1 }))),
        ("/v1/completions", json!({ "model": "demo", "prompt": "x", "max_tokens": 1 })),
        ("/v1/responses", json!({ "model": "demo", "input": "x", "max_output_tokens": 1 })),
        (
            "/v1/messages",
            json!({ "model": "demo", "max_tokens": 1, "messages": [{ "role": "user", "content": "x" }] }),
        ),
        ("/v1/embeddings", json!({ "model": "demo", "input": "x" })),
        ("/tokenize", json!({ "content": "x" })),
    ] {
        for name in FIELDS {
            for value in &wrong {
                let mut body = base.clone();
                body[*name] = value.clone();
                let answer = demo().post(path, &body);
                assert!(matches!(answer.status, 200 | 400 | 404), "{path} {body}: {answer:?}");
                if answer.status == 400 {
                    let error = &answer.json()["error"];
                    let named = error["param"].as_str().or(error["message"].as_str()).unwrap();
                    assert!(named.contains(*name) || error["param"].is_string(), "{path} {body}: {error}");
                }
            }
        }
    }
    assert_eq!(demo().get("/health").status, 200);
}

const FIELDS: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "input",
    "temperature",
    "top_p",
    "top_k",
    "n",
    "stop",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "seed",
    "tools",
    "tool_choice",
    "response_format",
    "metadata",
    "text",
    "thinking",
    "system",
    "instructions",
    "chat_template_kwargs",
    "structured_outputs",
    "unknown",
];

#[test]
fn metrics_count_what_happens() {
    let server = serve(Settings::default(), vec![Demo::default()]);
    assert_eq!(
        server.chat("Hello.", json!({ "max_tokens": 5, "logit_bias": { "1": -100, "106": -100 } })).status,
        200
    );
    assert_eq!(server.chat("Hello.", json!({ "bad": 1 })).status, 400);
    let metric = |name: &str| server.metric(name);
    assert_eq!(metric("hf2q_requests_total{route=\"/v1/chat/completions\",status=\"200\"}"), 1.0);
    assert_eq!(metric("hf2q_requests_total{route=\"/v1/chat/completions\",status=\"400\"}"), 1.0);
    server.wait_for("hf2q_answer_tokens_total{model=\"demo\"}", |n| n == 5.0);
    assert_eq!(metric("hf2q_time_to_first_token_seconds_count"), 1.0);
    assert_eq!(metric("hf2q_inter_token_seconds_count"), 4.0);
    let pages: Vec<Json> =
        vec![json!(server.get("/metrics").body.contains("hf2q_pages{model=\"demo\",group="))];
    assert_eq!(pages, [json!(true)]);
}
