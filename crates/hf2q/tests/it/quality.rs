//! `compare`, `needle`, `perplexity`: what caches cost in quality.

use serde_json::Value;

use crate::support::Place;

/// A place with a converted model and a text of some hundred tokens.
fn place() -> (Place, String) {
    let place = Place::new();
    let model = place.converted("tiny-dense", "f32");
    let sentence = "Once upon a time there was a little fox who lived at the edge of the forest. ";
    let text: String =
        (0..24).map(|i| format!("{sentence}He had {i} friends, and each of them was kind.\n")).collect();
    std::fs::write(place.path("text.txt"), text).unwrap();
    (place, model)
}

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.run(args).success()).unwrap()
}

const COMPARE: [&str; 6] = ["--text", "text.txt", "--context", "256", "--chunks", "2"];

fn compare<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["compare", model][..], &COMPARE, more].concat()
}

#[test]
fn formats_are_compared_side_by_side() {
    let (place, model) = place();
    let found =
        json(&place, &compare(&model, &["--b-kv", "f32", "--b-kv", "tq4", "--b-kv", "tq2", "--json"]));
    assert_eq!((&found["ok"], &found["chunks"], &found["tokens"]), (&true.into(), &2.into(), &254.into()));
    let [same, fine, coarse] = [0, 1, 2].map(|i| &found["candidates"][i]);
    assert_eq!((same["kl"]["max"].as_f64(), same["top1"].as_f64()), (Some(0.0), Some(1.0)));
    assert_eq!((same["ppl_ratio"].as_f64(), same["greedy"]["never"].as_f64()), (Some(1.0), Some(1.0)));
    assert!(same["layers"].as_array().unwrap().iter().all(|l| l["cosine"] == 1.0 && l["cosine_min"] == 1.0));
    let number = |c: &Value, path: &str| c.pointer(path).and_then(Value::as_f64).unwrap();
    for path in ["/kl/mean", "/kl/p99", "/kl/max"] {
        assert!(number(coarse, path) > number(fine, path) && number(fine, path) > 0.0, "{path}: {found}");
    }
    for path in
        ["/bits_per_element", "/marginal_bits_per_element", "/bytes_per_token", "/layers/0/cosine", "/top1"]
    {
        assert!(number(coarse, path) < number(fine, path), "{path}: {found}");
    }
    for (path, len) in [("/positions", 64), ("/histogram", 38), ("/greedy/first_other", 2)] {
        assert_eq!(fine.pointer(path).and_then(Value::as_array).unwrap().len(), len, "{path}");
    }
    assert_eq!((&fine["kv"], &fine["failed"]), (&"tq4".into(), &Value::Array(Vec::new())));
}

#[test]
fn exact_recent_positions_come_nearer_to_the_reference() {
    let (place, model) = place();
    let formats = ["--b-kv", "tq4,recent:off", "--b-kv", "tq4,recent:tq8", "--b-kv", "tq4", "--json"];
    let found = json(&place, &compare(&model, &formats));
    let number = |i: usize, path: &str| found["candidates"][i].pointer(path).and_then(Value::as_f64).unwrap();
    let kl = [0, 1, 2].map(|i| number(i, "/kl/mean"));
    assert!(kl[1] < 0.5 * kl[0] && kl[2] < 0.5 * kl[0], "{kl:?}");
    let bits = [0, 1, 2].map(|i| number(i, "/bits_per_element"));
    assert!(bits[0] < bits[1] && bits[1] < bits[2], "{bits:?}");
    assert_eq!(bits[0], number(0, "/marginal_bits_per_element"));
    assert_eq!(number(0, "/fixed_bytes"), 0.0);
    let marginal = [0, 1, 2].map(|i| number(i, "/bytes_per_token"));
    assert_eq!((marginal[0], marginal[0]), (marginal[1], marginal[2]));
    assert_eq!(found["candidates"][2]["kv"], "tq4");
}

#[test]
fn a_limit_that_is_not_kept_is_named_and_fails() {
    let (place, model) = place();
    let kept =
        ["--b-kv", "f32", "--max-kl", "0", "--min-top1", "1", "--max-ppl-ratio", "1", "--min-cosine", "1"];
    let text = place.run(&compare(&model, &kept)).success();
    for part in ["perplexity", "KL mean", "f32", "greedy runs", "never"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let ran = place.run(&compare(&model, &["--b-kv", "f32", "--b-kv", "tq2", "--max-kl", "0.0001"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("tq2"), "the table comes all the same: {}", ran.stdout);
    let said = ran.failure(&["tq2: mean KL is", "above --max-kl 0.0001"]);
    assert!(!said.contains("f32: "), "{said}");
    // What was typed wrong is another status.
    assert_eq!(place.run(&compare(&model, &["--b-kv", "tq4", "--max-kl", "x"])).code, Some(2));
}

#[test]
fn models_and_settings_are_compared() {
    let (place, model) = place();
    let other = place.converted("tiny-dense", "q4_0");
    let args = ["compare", &model, &other, "--text", "text.txt", "-c", "128", "--chunks", "2", "--json"];
    let found = json(&place, &args);
    assert_eq!((&found["reference"]["kv"], &found["candidates"][0]["kv"]), (&"f32".into(), &"f32".into()));
    assert!(found["candidates"][0]["kl"]["mean"].as_f64().unwrap() > 0.0);
    assert!(found["candidates"][0]["model"].as_str().unwrap().contains("q4_0"));
    let settings =
        ["--b-threads", "3", "--b-isa", "portable", "--chunk", "33", "--max-kl", "0", "--prompts", "0"];
    let quantized = place.converted("tiny-moe", "q8_0");
    place.run(&compare(&quantized, &settings)).success();
    // Its vocabulary is another one.
    let foreign = super::support::bundled("../../fixtures/tiny/llama");
    place
        .run(&["compare", &model, foreign.to_str().unwrap(), "--text", "text.txt"])
        .failure(&["A has a vocabulary of 4096 tokens and B one of", "the same tokens"]);
}

#[test]
fn mistakes_are_said_before_the_work() {
    let (place, model) = place();
    place.run(&compare(&model, &[])).failure(&["nothing to compare", "--b-kv"]);
    place.run(&["compare", &model, "--text", "text.txt", "--b-kv", "f16", "-c", "9000"]).failure(&[
        "text.txt has",
        "less than a chunk of 9000",
        "--context",
    ]);
    place.run(&compare(&model, &["--b-kv", "tq4", "--b-kv", "tq4"])).failure(&["--b-kv tq4 is given twice"]);
    for (flag, limit) in [("--min-top1", "99"), ("--min-cosine", "1.5"), ("--max-kl", "nan")] {
        let ran = place.run(&compare(&model, &["--b-kv", "tq4", flag, limit]));
        assert_eq!(ran.code, Some(2));
        ran.failure(&[flag, limit]);
    }
    place.run(&compare(&model, &["--b-kv", "f16", "--greedy", "200"])).failure(&["--greedy 200", "128 fit"]);
    place.run(&compare(&model, &["--b-kv", "f16", "--html", "text.txt"])).failure(&["text.txt is an input"]);
    place
        .run(&compare(&model, &["--b-kv", "f16", "--html", "no/page.html"]))
        .failure(&["there is no folder no"]);
    std::fs::write(place.path("page.html"), "mine").unwrap();
    place
        .run(&compare(&model, &["--b-kv", "f16", "--html", "page.html"]))
        .failure(&["exists already", "--force"]);
    assert_eq!(std::fs::read_to_string(place.path("page.html")).unwrap(), "mine");
    place.run(&compare(&model, &["--b-kv", "tq4", "--html", "page.html", "--force"])).success();
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for part in ["Attention outputs by layer", "KL by position", "Histogram of KL", "text text.txt"] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
}

#[test]
fn planted_facts_are_asked_for() {
    let (place, model) = place();
    let args = [
        "needle",
        &model,
        "--lengths",
        "300,400",
        "--depths",
        "0,1",
        "--seeds",
        "2",
        "--kv",
        "f32",
        "--kv",
        "tq4",
    ];
    let found = json(&place, &[&args[..], &["--json"]].concat());
    assert_eq!(found["results"].as_array().unwrap().len(), 8);
    assert_eq!((&found["summary"][1]["kv"], &found["summary"][1]["questions"]), (&"tq4".into(), &8.into()));
    for result in found["results"].as_array().unwrap() {
        assert!(result["tokens"].as_u64() <= result["length"].as_u64());
        let [a, b] = [0, 1].map(|i| result["answers"][i]["mean_log_likelihood"].as_f64().unwrap());
        assert!(a < 0.0 && b < 0.0 && a != b, "{result}");
    }
    let [once, again] = [(); 2].map(|()| place.run(&args).success());
    assert_eq!(once, again);
    assert!(once.contains("tokens  depth") && once.contains("0.00") && once.contains("tq4"), "{once}");
    let text = place.run(&[&args[..], &["--text", "text.txt"]].concat()).success();
    assert_ne!(text, once);
    place.run(&["needle", &model, "--lengths", "40"]).failure(&["40 tokens", "at least"]);
    place.run(&["needle", &model, "--lengths", "999999"]).failure(&["--lengths 999999", "context"]);
    place.run(&["needle", &model, "--depths", "2"]).failure(&["2 is not from 0 to 1"]);
}

#[test]
fn perplexity_takes_strides_and_formats() {
    let (place, model) = place();
    let run = |more: &[&str]| {
        json(&place, &[&["perplexity", &model, "text.txt", "--tokens", "96", "--json"], more].concat())
    };
    let number = |found: &Value, key: &str| found[key].as_f64().unwrap();
    let plain = run(&[]);
    assert_eq!(plain, run(&["--stride", "96"]));
    for key in ["perplexity_error", "nll", "nll_mean", "nll_error", "bits_per_token"] {
        assert!(number(&plain, key) > 0.0, "{key}");
    }
    assert!((number(&plain, "nll") / number(&plain, "tokens") - number(&plain, "nll_mean")).abs() < 1e-12);
    assert!((number(&plain, "perplexity").ln() - number(&plain, "nll_mean")).abs() < 1e-12);
    let strided = run(&["--stride", "32"]);
    assert_eq!(strided["tokens"], plain["tokens"]);
    assert!(number(&strided, "windows") > 2.0 * number(&plain, "windows"));
    assert!(number(&strided, "perplexity") < number(&plain, "perplexity"), "more context predicts better");
    let coarse = run(&["--kv", "tq2"]);
    assert!(coarse["kv"] == "tq2" && coarse["perplexity"] != plain["perplexity"]);
    place
        .run(&["perplexity", &model, "text.txt", "--stride", "600"])
        .failure(&["--stride 600", "--tokens 511"]);
    place.run(&["perplexity", &model, "text.txt", "-c", "512"]).failure(&["-c"]);
}

#[test]
fn what_predicts_nothing_has_no_perplexity() {
    let (place, model) = place();
    let mut bytes = std::fs::read(place.path(&model)).unwrap();
    let weights = bytes.len() - (1 << 20);
    bytes[weights..].fill(0xff);
    std::fs::write(place.path("nan.gguf"), bytes).unwrap();
    place.run(&["perplexity", "nan.gguf", "text.txt"]).failure(&["not finite", "hf2q verify"]);
}

#[test]
fn texts_are_utf_8_and_long_windows_are_no_secret() {
    let (place, model) = place();
    std::fs::write(place.path("latin.txt"), b"caf\xe9 and more").unwrap();
    place.run(&["perplexity", &model, "latin.txt"]).failure(&["latin.txt: byte 3 is no UTF-8"]);
    let text = std::fs::read_to_string(place.path("text.txt")).unwrap();
    std::fs::write(place.path("long.txt"), text.repeat(6)).unwrap();
    let long = ["compare", &model, "--b-kv", "f16", "--text", "long.txt", "-c", "4200", "--greedy", "0"];
    let ran = place.run(&long);
    assert!(ran.stderr.contains("note: --context 4200 is more than the model's context of 4096"), "{ran:?}");
    ran.success();
    // A window is no longer than its text, whatever is asked for.
    let ran = place.run(&["perplexity", &model, "text.txt", "--tokens", "16777216", "--json"]);
    assert!(!ran.stderr.contains("note:"), "{ran:?}");
    ran.success();
}
