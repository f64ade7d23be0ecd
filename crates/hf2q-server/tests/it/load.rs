//! Clients that go away, read slowly or come in crowds; servers that are stopped.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::chat::joined;
use crate::support::{Answer, Demo, Running, chat, serve, with};
use hf2q_engine::Budget;
use hf2q_server::Settings;

/// An answer that does not end by itself before the context is full.
fn endless() -> Json {
    json!({ "logit_bias": { "1": -100, "106": -100 }, "temperature": 1.0 })
}

fn wait_until_idle(server: &Running) {
    server.wait_for("hf2q_jobs_running", |n| n == 0.0);
    server.wait_for("hf2q_jobs_waiting", |n| n == 0.0);
}

#[test]
fn work_ends_when_its_client_is_gone() {
    let server = serve(Settings::default(), vec![Demo { context: 8192, sequences: 2, ..Demo::default() }]);
    server.chat("warm", json!({ "max_tokens": 1 }));
    wait_until_idle(&server);
    for stream in [true, false] {
        // At once, while the prompt is computed, and in the middle of the answer.
        for tokens in [0, 1, 5] {
            let before = server.metric("hf2q_jobs_cancelled_total");
            let text = if tokens == 0 { "sea ".repeat(5000) } else { "x".to_owned() };
            let body = chat(&text, with(endless(), json!({ "stream": stream })));
            let mut open = server.open("POST", "/v1/chat/completions", &[], &body.to_string());
            server.wait_for("hf2q_jobs_running", |n| n == 1.0);
            if stream && tokens > 0 {
                let mut bytes = [0; 256];
                for _ in 0..tokens {
                    assert!(open.0.read(&mut bytes).unwrap() > 0);
                }
            }
            drop(open);
            wait_until_idle(&server);
            server.wait_for("hf2q_jobs_cancelled_total", |n| n == before + 1.0);
        }
    }
    assert_eq!(server.chat("still here?", json!({ "max_tokens": 1 })).status, 200);
}

#[test]
fn a_crowd_is_told_to_come_again() {
    let server =
        serve(Settings::default(), vec![Demo { sequences: 1, queue: 1, context: 4096, ..Demo::default() }]);
    server.chat("warm", json!({ "max_tokens": 1 }));
    wait_until_idle(&server);
    let body = chat("x", with(endless(), json!({ "stream": true }))).to_string();
    let running = server.open("POST", "/v1/chat/completions", &[], &body);
    server.wait_for("hf2q_jobs_running", |n| n == 1.0);
    let waiting = server.open("POST", "/v1/chat/completions", &[], &body);
    server.wait_for("hf2q_jobs_waiting", |n| n == 1.0);
    let refused = server.chat("x", json!({}));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    drop((running, waiting));
    wait_until_idle(&server);
    assert_eq!(server.chat("x", json!({ "max_tokens": 1 })).status, 200);
}

#[test]
fn a_deadline_ends_what_takes_too_long() {
    let settings = Settings { timeout: Some(Duration::from_millis(300)), ..Settings::default() };
    let server = serve(settings, vec![Demo { context: 16_384, sequences: 1, ..Demo::default() }]);
    server.chat("warm", json!({ "max_tokens": 1 }));
    let whole = server.chat("x", endless());
    assert_eq!((whole.status, whole.json()["error"]["code"].as_str()), (504, Some("timeout")));
    let streamed = server.chat("x", with(endless(), json!({ "stream": true })));
    assert_eq!(streamed.status, 200);
    let (_, last) = streamed.events().pop().unwrap();
    assert!(last.contains("\"code\":\"timeout\""), "{last}");
}

#[test]
fn a_reader_that_does_not_read_loses_its_answer_and_holds_up_no_one() {
    let settings = Settings { backlog: 32, ..Settings::default() };
    let server = serve(settings, vec![Demo { context: 4096, sequences: 9, ..Demo::default() }]);
    // What the system holds for a connection is filled by eight answers, each with many probabilities.
    let more = with(endless(), json!({ "stream": true, "logprobs": true, "top_logprobs": 20, "n": 8 }));
    let slow = server.open("POST", "/v1/chat/completions", &[], &chat("x", more).to_string());
    server.wait_for("hf2q_time_to_first_token_seconds_count", |n| n > 0.0);
    assert_eq!(server.chat("quick", json!({ "max_tokens": 3 })).status, 200);
    wait_until_idle(&server);
    assert_eq!(server.metric("hf2q_jobs_cancelled_total"), 8.0);
    drop(slow);
}

#[test]
fn answers_do_not_depend_on_company_or_order() {
    // Fewer pages than all jobs together could use.
    let demo = Demo { sequences: 6, queue: 64, budget: Budget::Pages(7), context: 384, ..Demo::default() };
    let server = serve(Settings::default(), vec![demo]);
    let bodies: Vec<Json> = (0..24)
        .map(|i| {
            let shared = "Long ago, when the sea was young, there was a small boat. ".repeat(i % 4);
            let more =
                json!({ "seed": i, "temperature": 1.0, "max_tokens": 8 + 7 * (i % 9), "n": 1 + i % 2 });
            chat(&format!("{shared}Tell me {i}."), more)
        })
        .collect();
    let texts = |answer: &Answer| {
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let choices = json["choices"].as_array().unwrap().iter();
        choices.map(|c| c["message"]["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let send = |body: &Json| server.open("POST", "/v1/chat/completions", &[], &body.to_string());
    let alone: Vec<_> = bodies.iter().map(|b| texts(&send(b).answer())).collect();
    let open: Vec<_> = bodies.iter().rev().map(send).collect();
    let mut together: Vec<_> = open.into_iter().map(|o| texts(&o.answer())).collect();
    together.reverse();
    assert_eq!(alone, together);
    wait_until_idle(&server);
    assert!(server.metric("hf2q_prefix_hits_total") > 0.0);
}

#[test]
fn a_stopped_server_lets_answers_end_or_cuts_them() {
    let mut server = serve(Settings::default(), vec![Demo::default()]);
    let more = json!({ "stream": true, "max_tokens": 200, "logit_bias": { "1": -100, "106": -100 } });
    let open = server.open("POST", "/v1/chat/completions", &[], &chat("x", more).to_string());
    server.wait_for("hf2q_jobs_running", |n| n == 1.0);
    server.server.take().unwrap().stop(Duration::from_secs(30));
    assert_eq!(joined(&open.answer(), 0).1, json!("length"));
    assert!(std::net::TcpStream::connect(server.address).is_err());

    let mut server =
        serve(Settings::default(), vec![Demo { context: 16_384, sequences: 1, ..Demo::default() }]);
    let body = chat("x", with(endless(), json!({ "stream": true }))).to_string();
    let open = server.open("POST", "/v1/chat/completions", &[], &body);
    server.wait_for("hf2q_time_to_first_token_seconds_count", |n| n > 0.0);
    let start = Instant::now();
    server.server.take().unwrap().stop(Duration::ZERO);
    assert!(start.elapsed() < Duration::from_secs(20));
    let (_, last) = open.answer().events().pop().unwrap();
    assert!(last.contains("error"), "{last}");
}
