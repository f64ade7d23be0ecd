//! Answers with --draft are those without.

use serde_json::Value;

use crate::support::Place;

/// A text that repeats itself.
const PROMPT: &str =
    "The fox saw the crow. The fox saw the hen. The fox saw the crow. The fox saw the hen. The fox saw the";

#[test]
fn guesses_do_not_change_what_is_answered() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let run = |more: &[&str]| {
        let args = ["run", &model, PROMPT, "--raw", "-n", "40", "-t", "1", "--device", "cpu"];
        place.run(&[&args[..], more].concat())
    };
    for drawn in [&["--temperature", "0"][..], &["--temperature", "0.7", "--seed", "4"]] {
        let plain = run(&[drawn, &["--draft", "none"]].concat()).success();
        for drafts in [
            &["--draft", "ngram", "--draft-depth", "4"][..],
            &["--draft", "ngram", "--draft-depth", "4", "--draft-shape", "chain"],
            &["--draft", "ngram", "--draft-depth", "4", "--draft-shape", "tree"],
            &["--draft", "ngram"],
            // It is its own draft model, and so right each time.
            &["--draft", &model, "--draft-depth", "3"],
        ] {
            let ran = run(&[drawn, drafts].concat());
            assert!(ran.stderr.contains(" guesses right") || drafts.len() == 2, "{}", ran.stderr);
            if drafts[1] == model {
                assert!(ran.stderr.contains(" (in percent by depth: 100 100 100), "), "{}", ran.stderr);
                assert!(ran.stderr.contains(" tokens a step"), "{}", ran.stderr);
                let line = ran.stderr.rsplit_once(" guesses right").unwrap().0;
                let words: Vec<&str> = line.rsplit(' ').take(3).collect();
                assert!(words[0] == words[2] && words[1] == "of", "{line}");
            }
            assert_eq!(ran.success(), plain, "{drawn:?} {drafts:?}");
        }
    }
}

#[test]
fn drafters_that_do_not_fit_are_refused() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizer/smollm.gguf");
    let run = |more: &[&str]| place.run(&[&["run", &model, "x", "--raw", "-n", "2"], more].concat());
    run(&["--draft", fixture]).failure(&["--draft", "another vocabulary: token 0 is"]);
    run(&["--draft", "nowhere.gguf"]).failure(&["nowhere.gguf"]);
    run(&["--draft", &model, "--draft-shape", "tree"]).failure(&["--draft-shape tree", "chains only"]);
    run(&["--draft", ""]).failure(&["ngram, none or a model"]);
    run(&["--draft", "NGRAM"]).failure(&["expected ngram, none or a model file"]);
    for depth in ["0", "-1"] {
        run(&["--draft", "ngram", "--draft-depth", depth]).failure(&["auto or a number from 1 to 32"]);
    }
    for (flag, value) in [("--draft-depth", "4"), ("--draft-shape", "tree")] {
        run(&[flag, value]).failure(&[flag, "--draft: say what guesses"]);
        for command in ["chat", "serve", "bench"] {
            place.run(&[command, &model, flag, value]).failure(&[flag, "--draft: say what guesses"]);
        }
    }
    let bench = |more: &[&str]| place.run(&[&["bench", &model], more].concat());
    bench(&["--draft", "ngram"]).failure(&["--text FILE"]);
    bench(&["--text", "x"]).failure(&["--draft"]);
    bench(&["--temperature", "1"]).failure(&["--text"]);
    bench(&["--seed", "1", "--draft", "ngram"]).failure(&["--text"]);
    std::fs::write(place.path("empty"), "\n").unwrap();
    bench(&["--draft", "ngram", "--text", "empty"]).failure(&["--text empty", "the file is empty"]);
    bench(&["--draft", "ngram", "--text", "x", "-p", "8"]).failure(&["--text", "--prompt"]);
    bench(&["--draft", "ngram", "--text", "x", "-d", "8"]).failure(&["--text", "--depth"]);
}

#[test]
fn a_drafter_for_another_model_is_refused_before_a_server_listens() {
    let place = Place::new();
    let models = [place.converted("tiny-moe", "q8_0"), place.converted("tiny-dense", "q8_0")];
    let [moe, dense] = &models;
    let served = [format!("one={moe}"), format!("other={dense}")];
    let run = |draft: &str| place.run(&["serve", &served[0], &served[1], "--port", "0", "--draft", draft]);
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizer/smollm.gguf");
    run(fixture).failure(&["--draft for one", "another vocabulary: token 0 is"]);
}

#[test]
fn what_drafts_is_counted_where_memory_is() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let head = crate::support::bundled("eagle3-tiny-moe");
    place.run(&["convert", head.to_str().unwrap(), "-o", "head.gguf"]).success();
    let fit = |draft: &str, more: &[&str]| {
        let args = ["fit", &model, "--memory", "4G", "--threads", "1", "--kv", "f16", "--draft", draft];
        place.run(&[&args[..], more].concat()).success()
    };
    let json = |draft: &str| -> Value { serde_json::from_str(&fit(draft, &["--json"])).unwrap() };
    let number = |json: &Value, path: &str| json.pointer(path).and_then(Value::as_u64).unwrap();
    let plain = json("none");
    assert_eq!(plain["candidates"][0]["drafter"], Value::Null);
    for draft in ["head.gguf", &model] {
        let found = json(draft);
        let of = |name: &str| number(&found, &format!("/candidates/0/{name}"));
        let parts = ["drafter/weights", "drafter/caches", "drafter/activations"].map(of);
        assert!(parts.iter().all(|&bytes| bytes > 0), "{draft}: {parts:?}");
        let own = number(&found, "/weights") + of("caches") + of("activations");
        assert_eq!(of("total"), own + parts.iter().sum::<u64>(), "{draft}");
        assert!(draft != model || parts[1] == of("caches"), "it is its own drafter: {found}");
    }
    assert!(fit("head.gguf", &[]).contains("  drafter  "));
}

#[test]
fn what_guesses_are_good_for_is_measured() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    std::fs::write(place.path("text"), PROMPT).unwrap();
    let args = ["bench", &model, "--draft", &model, "--text", "text", "-n", "24", "-r", "2", "-t", "1"];
    let text = place.run(&args).success();
    for part in [
        "without drafts",
        "with model tiny-moe",
        "times as fast, median of 2 answers of 24 tokens: ",
        "times as fast, median of 2 turns of about 32 tokens (16 at least): ",
        "by depth: 100",
        " s of each answer ",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&place.run(&[&args[..], more, &["--json"]].concat()).success()).unwrap()
    };
    let drawn = json(&["--temperature", "1.5", "--seed", "3"]);
    assert_eq!((&drawn["answers"].as_array().unwrap().len(), &drawn["turn_ratio"]["count"]), (&2, &2.into()));
    for count in ["0", "1"] {
        place.run(&[&args[..6], &["-n", count]].concat()).failure(&["-n", "at least 2 tokens"]);
    }
    let json = json(&["--draft-depth", "2"]);
    assert_eq!(json["right_by_depth"], serde_json::json!([1.0, 1.0]));
    assert!(json["saved_seconds"].is_f64() && json["drafting_seconds"].is_f64());
    assert!(json["turn_ratio"]["median"].is_f64() && json["turn_ratio"]["interval"].is_null());
    assert!(json["tokens_per_step"].as_f64().unwrap() > 2.0 && json["ratios"].as_array().unwrap().len() == 2);
}

#[test]
fn an_answer_without_a_whole_turn_has_no_times_of_turns() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    std::fs::write(place.path("text"), PROMPT).unwrap();
    let args = ["bench", &model, "--draft", "ngram", "--text", "text", "-n", "12", "-r", "6", "-t", "1"];
    let found: Value =
        serde_json::from_str(&place.run(&[&args[..], &["--json"]].concat()).success()).unwrap();
    let none =
        serde_json::json!({ "median": null, "least": null, "most": null, "interval": null, "count": 0 });
    assert_eq!(found["turn_ratio"], none);
    let text = place.run(&args).success();
    assert!(!text.contains(" turns of ") && text.contains(", of this answer measured again with"), "{text}");
}

#[test]
fn help_fits_a_terminal() {
    let place = Place::new();
    for command in ["run", "chat", "serve", "bench", "fit", "convert"] {
        let text = place.run(&[command, "--help"]).success();
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert!(text.contains("Usage: ") && long.is_none(), "{command}: {long:?}");
    }
}
