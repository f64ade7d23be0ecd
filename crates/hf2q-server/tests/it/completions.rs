//! `/v1/completions`, `/v1/embeddings`, `/tokenize`, `/detokenize`.

use serde_json::{Value as Json, json};

use crate::chat::joined;
use crate::support::{Answer, demo, with};

fn complete(more: Json) -> Answer {
    let base = json!({ "model": "demo", "prompt": "Once upon a time", "seed": 3, "max_tokens": 12, "temperature": 0 });
    demo().post("/v1/completions", &with(base, more))
}

fn text(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn texts_are_continued_whole_streamed_and_from_ids() {
    let plain = text(&complete(json!({})));
    assert_eq!(joined(&complete(json!({ "stream": true })), 0).0, plain);
    let ids = demo().post("/tokenize", &json!({ "content": "Once upon a time", "add_special": true })).json();
    assert_eq!(text(&complete(json!({ "prompt": ids["tokens"] }))), plain);
    assert_eq!(text(&complete(json!({ "echo": true }))), format!("Once upon a time{plain}"));
    let both = complete(json!({ "prompt": ["Once upon a time", "The sea"], "n": 2 })).json();
    let choices = both["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert_eq!((&choices[0]["text"], &choices[1]["text"]), (&json!(plain), &json!(plain)));
    assert!(choices.iter().enumerate().all(|(i, c)| c["index"] == i));
}

#[test]
fn stop_strings_end_texts_in_the_middle_of_tokens() {
    let plain = text(&complete(json!({ "max_tokens": 30 })));
    let middle = plain.char_indices().nth(9).unwrap().0;
    let stop: String = plain[middle..].chars().take(3).collect();
    let expected = &plain[..plain.find(&stop).unwrap()];
    let more = json!({ "max_tokens": 30, "stop": stop });
    assert_eq!(text(&complete(more.clone())), expected);
    assert_eq!(
        joined(&complete(with(more, json!({ "stream": true }))), 0),
        (expected.to_owned(), json!("stop"))
    );
}

#[test]
fn old_probabilities_have_the_old_shape() {
    let answer = complete(json!({ "logprobs": 2, "max_tokens": 5 })).json();
    let lists = &answer["choices"][0]["logprobs"];
    let len = |name: &str| lists[name].as_array().unwrap_or_else(|| panic!("{name} in {answer}")).len();
    assert_eq!([len("tokens"), len("token_logprobs"), len("top_logprobs"), len("text_offset")], [5; 4]);
    assert_eq!(lists["text_offset"][0], 0);
    assert_eq!(lists["top_logprobs"][0].as_object().unwrap().len(), 2);
    let echoed = complete(json!({ "logprobs": 0, "max_tokens": 2, "echo": true })).json();
    let lists = &echoed["choices"][0]["logprobs"];
    let prompt = echoed["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(lists["tokens"].as_array().unwrap().len(), prompt + 2, "{echoed}");
    assert_eq!(lists["token_logprobs"][0], Json::Null);
    assert!(lists["token_logprobs"][1].as_f64().unwrap() < 0.0);
    let only = complete(json!({ "logprobs": 0, "max_tokens": 0, "echo": true })).json();
    assert_eq!(only["choices"][0]["text"], "Once upon a time", "{only}");
    assert_eq!(only["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), prompt, "{only}");
}

#[test]
fn empty_and_impossible_prompts_have_a_defined_answer() {
    // The model begins texts with a token of its own.
    assert_eq!(complete(json!({ "prompt": "" })).status, 200);
    assert_eq!(complete(json!({ "prompt": [""] })).status, 200);
    for (more, param) in [
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": [[]] }), "prompt"),
        (json!({ "prompt": [99_999_999] }), "prompt"),
        (json!({ "prompt": null }), "prompt"),
        (json!({ "prompt": "sea ".repeat(600) }), "prompt"),
        (json!({ "suffix": "x" }), "suffix"),
        (json!({ "n_discard": -32 }), "n_discard"),
    ] {
        let answer = complete(more.clone());
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some(param)), "{more}");
    }
}

#[test]
fn embeddings_are_unit_vectors_in_both_encodings() {
    let base = json!({ "model": "demo", "input": ["the sea", "the moon", "the sea"] });
    let answer = demo().post("/v1/embeddings", &base).json();
    let vector = |i: usize| -> Vec<f64> {
        answer["data"][i]["embedding"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect()
    };
    let length: f64 = vector(0).iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-3);
    assert_eq!(vector(0), vector(2));
    assert_ne!(vector(0), vector(1));
    assert_eq!(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]);
    let encoded =
        demo().post("/v1/embeddings", &with(base.clone(), json!({ "encoding_format": "base64" }))).json();
    let text = encoded["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (vector(0).len() * 4).div_ceil(3) * 4);
    for (more, param) in [
        (json!({ "input": "" }), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "dimensions": 3 }), "dimensions"),
        (json!({ "encoding_format": "hex" }), "encoding_format"),
    ] {
        let refused = demo().post("/v1/embeddings", &with(base.clone(), more.clone()));
        assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some(param)), "{more}");
    }
}

#[test]
fn tokens_become_text_and_back() {
    let plain = demo().post("/tokenize", &json!({ "content": "Hello <bos> world" })).json();
    let text = demo().post("/detokenize", &json!({ "tokens": plain["tokens"] })).json();
    assert_eq!(text["content"], "Hello <bos> world");
    assert_eq!(plain["count"], plain["tokens"].as_array().unwrap().len());
    let parsed =
        demo().post("/tokenize", &json!({ "content": "Hello <bos> world", "parse_special": true })).json();
    assert!(parsed["count"].as_u64() < plain["count"].as_u64());
    let pieces = demo().post("/tokenize", &json!({ "content": "Hello", "with_pieces": true })).json();
    let joined: String =
        pieces["tokens"].as_array().unwrap().iter().map(|t| t["piece"].as_str().unwrap()).collect();
    assert_eq!(joined, "Hello");
    assert_eq!(demo().post("/tokenize", &json!({})).status, 400);
    assert_eq!(demo().post("/detokenize", &json!({ "tokens": ["a"] })).status, 400);
    let unknown = demo().post("/detokenize", &json!({ "tokens": [300, 999_999] }));
    assert_eq!((unknown.status, &unknown.json()["error"]["param"]), (400, &json!("tokens")));
}
