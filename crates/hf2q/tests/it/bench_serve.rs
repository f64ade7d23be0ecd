//! The load generator against a server that follows a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::Place;

/// Answers a request's body.
type Script = fn(&serde_json::Value) -> Reply;

enum Reply {
    /// Status and body.
    Whole(u16, String),
    /// Events of a stream, then the end of the connection.
    Events(Vec<String>),
}

/// A server that lives as long as the test program. Returns its address and the bodies that it was sent.
fn server(script: Script) -> (String, Arc<Mutex<Vec<serde_json::Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let bodies = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let bodies = bodies.clone();
            thread::spawn(move || serve(stream.unwrap(), script, &bodies));
        }
    });
    (address, seen)
}

fn serve(stream: TcpStream, script: Script, bodies: &Mutex<Vec<serde_json::Value>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let reply = if head.starts_with("GET /v1/models ") {
        Reply::Whole(200, r#"{"data":[{"id":"first"},{"id":"second"}]}"#.into())
    } else {
        let body = serde_json::from_slice(&body).unwrap();
        let reply = script(&body);
        bodies.lock().unwrap().push(body);
        reply
    };
    let _ = match reply {
        Reply::Whole(status, body) => write!(
            stream,
            "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ),
        Reply::Events(events) => {
            let events: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}"
            )
        }
    };
}

fn piece(text: &str) -> String {
    serde_json::json!({ "choices": [{ "delta": { "content": text }, "finish_reason": null }] }).to_string()
}

fn usage() -> String {
    r#"{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":5}}}"#.into()
}

fn good(_: &serde_json::Value) -> Reply {
    Reply::Events(vec![piece(""), piece("a"), piece("b"), usage(), "[DONE]".into()])
}

#[test]
fn answers_are_counted_and_timed() {
    let (address, seen) = server(good);
    let args = [
        "bench-serve",
        &address,
        "-n",
        "20",
        "-c",
        "4",
        "--prompt",
        "5..9",
        "--answer",
        "7",
        "--warmup",
        "1",
        "--shared-prefix",
        "3",
        "--body",
        "{\"ignore_eos\": true}",
        "--first-token",
        "60000",
        "--json",
    ];
    let json: serde_json::Value = serde_json::from_str(&Place::new().run(&args).success()).unwrap();
    assert_eq!((&json["model"], &json["answers"], &json["good"]), (&"first".into(), &20.into(), &20.into()));
    assert_eq!(
        (&json["answer_tokens"], &json["prompt_tokens"], &json["cached_tokens"]),
        (&140.into(), &400.into(), &100.into())
    );
    assert_eq!(json["errors"], serde_json::json!({}));
    assert_eq!(json["milliseconds"]["first_token"]["count"], 20);
    assert_eq!(json["milliseconds"]["between_pieces"]["count"], 20);
    let bodies = seen.lock().unwrap();
    assert_eq!(bodies.len(), 21);
    let words = |b: &serde_json::Value| b["messages"][0]["content"].as_str().unwrap().split(' ').count();
    assert!(
        bodies.iter().all(|b| (5..=9).contains(&words(b)) && b["ignore_eos"] == true && b["max_tokens"] == 7)
    );
}

/// Fails in each way in turn, by the length of the answer that is asked for.
fn failing(body: &serde_json::Value) -> Reply {
    match body["max_tokens"].as_u64().unwrap() {
        1 => Reply::Whole(429, "{\"error\":{}}".into()),
        2 => Reply::Events(vec![piece("a")]),
        3 => Reply::Events(vec![piece("a"), "{\"error\":{\"message\":\"x\"}}".into()]),
        4 => Reply::Events(vec!["no json".into()]),
        _ => good(body),
    }
}

#[test]
fn errors_are_counted_by_kind() {
    let (address, _) = server(failing);
    let args =
        ["bench-serve", &address, "-n", "60", "--rate", "2000", "--answer", "1..6", "--model", "m", "--json"];
    let json: serde_json::Value = serde_json::from_str(&Place::new().run(&args).success()).unwrap();
    let errors = json["errors"].as_object().unwrap();
    let failed: u64 = errors.values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(failed + json["answers"].as_u64().unwrap(), 60);
    let kinds: Vec<&str> = errors.keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        ["status 429", "an error in the stream", "not OpenAI's protocol", "the stream ended early"]
    );
}

#[test]
fn whole_answers_and_tables() {
    fn whole(body: &serde_json::Value) -> Reply {
        assert_eq!(body["stream"], false);
        let json = serde_json::json!({ "choices": [{ "text": "a" }], "usage": { "completion_tokens": 3, "prompt_tokens": 4 } });
        Reply::Whole(200, json.to_string())
    }
    let (address, _) = server(whole);
    let args = [
        "bench-serve",
        &format!("{address}/v1/"),
        "-n",
        "3",
        "-c",
        "1",
        "--no-stream",
        "--endpoint",
        "completions",
    ];
    let table = Place::new().run(&args).success();
    assert!(table.contains("3 answered, 0 failed") && table.contains("whole answer"), "{table}");
    assert!(!table.contains("first token"), "{table}");
}

#[test]
fn what_is_no_server_is_said() {
    let place = Place::new();
    place.run(&["bench-serve", "localhost"]).failure(&["is no address"]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.run(&["bench-serve", &format!("http://{closed}")]).failure(&["no list of models", "--model"]);
    place
        .run(&["bench-serve", &format!("http://{closed}"), "--model", "m", "-n", "2"])
        .failure(&["no request was answered"]);
    place.run(&["bench-serve", "http://x", "--prompt", "9..5"]).failure(&["9 is more than 5"]);
}
