//! Guessed tokens: the same answers, and counted.

use serde_json::json;

use crate::support::{Demo, demo, serve};
use hf2q_server::Settings;

const PROMPT: &str = "The fox saw the hen. The fox saw the crow. The fox saw the hen. The fox saw the";

#[test]
fn guesses_change_no_answer_and_are_counted() {
    let drafted = serve(Settings::default(), vec![Demo { drafts: true, ..Demo::default() }]);
    let (mut accepted, mut rejected) = (0, 0);
    for more in [
        json!({ "temperature": 0 }),
        json!({ "seed": 3, "n": 3 }),
        json!({ "seed": 4, "stop": ["e", "the"] }),
        json!({ "temperature": 0, "logprobs": true, "top_logprobs": 2 }),
        json!({ "seed": 5, "response_format": { "type": "json_object" } }),
    ] {
        let mut body = more.clone();
        body["max_tokens"] = json!(40);
        let [with, without] = [&drafted, demo()].map(|server| server.chat(PROMPT, body.clone()).json());
        let choices = |answer: &serde_json::Value| answer["choices"].clone();
        assert!(!choices(&with).is_null() && choices(&with) == choices(&without), "{more}: {with} {without}");
        assert_eq!(with["usage"]["completion_tokens"], without["usage"]["completion_tokens"]);
        let number = |name: &str| with["usage"]["completion_tokens_details"][name].as_u64().unwrap();
        accepted += number("accepted_prediction_tokens");
        rejected += number("rejected_prediction_tokens");
        let told = &with["usage"]["speculation"];
        assert!(without["usage"]["speculation"].is_null());
        if number("accepted_prediction_tokens") > 0 {
            assert!(told["tokens_per_step"].as_f64().unwrap() > 1.0, "{told}");
            assert!(told["accepted_by_depth"][0].as_f64().unwrap() > 0.0, "{told}");
            assert!(told.get("saved_seconds").is_some_and(|s| s.is_null() || s.is_f64()), "{told}");
        }
    }
    assert!(accepted > 0 && rejected > 0, "{accepted} {rejected}");
    drafted.wait_for("hf2q_accepted_tokens_total", |n| n >= accepted as f64);
    drafted.wait_for("hf2q_drafted_tokens_total", |n| n >= (accepted + rejected) as f64);
    let page = drafted.get("/metrics").body;
    for line in [
        "hf2q_draft_levels_total{model=\"demo\",drafter=\"ngram\",depth=\"1\"} ",
        "hf2q_draft_levels_accepted_total{model=\"demo\",drafter=\"ngram\",depth=\"2\"} ",
        "hf2q_draft_saved_seconds{model=\"demo\"} ",
        "hf2q_answer_steps_total{model=\"demo\"} ",
        "hf2q_drafter_failures_total{model=\"demo\"} 0",
    ] {
        assert!(page.contains(line), "{line:?} is not in {page}");
    }
}
