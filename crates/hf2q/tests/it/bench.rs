//! `hf2q bench`: tables, JSON, several sequences, and another program in turn.

use serde_json::Value;

use crate::support::{Place, Ran};

fn bench(place: &Place, model: &str, more: &[&str]) -> Ran {
    place.run(
        &[&["bench", model, "-p", "8", "-n", "2", "-r", "2", "-t", "1", "--device", "cpu"], more].concat(),
    )
}

fn json(ran: Ran) -> Value {
    serde_json::from_str(&ran.success()).unwrap()
}

#[test]
fn tables_fit_a_terminal_and_show_the_roofline() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let text = bench(&place, &model, &["-d", "5"]).success();
    for part in
        ["roofline: ", "GOP/s int8", "prompt 8 at depth 5 ", "decode 2 at depth 5 ", " %", "median of 2 runs"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let found = json(bench(&place, &model, &["--json"]));
    for number in [
        "/roofline/bytes_per_second",
        "/roofline/int8_ops_per_second",
        "/prompt/of_roofline",
        "/decode/bytes_per_second",
        "/decode/operations_per_second",
    ] {
        assert!(
            found.pointer(number).and_then(Value::as_f64).is_some_and(|n| n > 0.0),
            "{number} in {found}"
        );
    }
    assert!(found.get("against").is_none());
}

#[test]
fn several_sequences_are_decoded_at_once() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let found = json(bench(&place, &model, &["--sequences", "3", "-d", "70", "--json"]));
    assert_eq!((&found["prompt"]["sequences"], &found["decode"]["sequences"]), (&1.into(), &3.into()));
    let alone = json(bench(&place, &model, &["-d", "70", "--json"]));
    let runs = |json: &Value, phase: &str| json[phase]["tokens_per_second"].as_array().unwrap().len();
    assert_eq!((runs(&found, "decode"), runs(&alone, "decode")), (2, 2));
    let text = bench(&place, &model, &["--sequences", "3"]).success();
    assert!(text.contains("decode 2 x 3 "), "{text}");
    bench(&place, &model, &["--sequences", "0"]).failure(&["--sequences"]);
}

/// A program that stands for llama-bench.
#[cfg(unix)]
fn peer(place: &Place, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = place.path("peer");
    let script = format!("#!/bin/sh\n[ \"$1\" = --help ] && exit 1\necho \"$@\" >> calls\n{body}\n");
    // Written under another name: what is still open for writing cannot be run.
    let draft = place.path("draft");
    std::fs::write(&draft, script).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&draft, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
#[cfg(unix)]
fn another_program_runs_in_turn() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let tests =
        r#"echo '[{"n_prompt": 8, "n_gen": 0, "avg_ts": 4.0}, {"n_prompt": 0, "n_gen": 2, "avg_ts": 2}]'"#;
    let program = peer(&place, tests);
    let found = json(bench(&place, &model, &["--against", &program, "-d", "3", "--json"]));
    for (phase, theirs) in [("prompt", 4.0), ("decode", 2.0)] {
        let against = &found["against"][phase];
        assert_eq!(against["tokens_per_second"], serde_json::json!([theirs, theirs]));
        let mut ratios: Vec<f64> =
            against["ratios"].as_array().unwrap().iter().map(|r| r.as_f64().unwrap()).collect();
        ratios.sort_by(f64::total_cmp);
        for (ratio, ours) in ratios.iter().zip(found[phase]["tokens_per_second"].as_array().unwrap()) {
            assert!((ratio * theirs / ours.as_f64().unwrap() - 1.0).abs() < 1e-9, "{found}");
        }
        let median = f64::midpoint(ratios[0], ratios[1]);
        assert!((against["ratio"].as_f64().unwrap() / median - 1.0).abs() < 1e-9, "{found}");
    }
    let calls = std::fs::read_to_string(place.path("calls")).unwrap();
    assert_eq!(calls.lines().count(), 2);
    let asked = format!("-m {model} -o json -ctk f16 -ctv f16 -t 1 -p 8 -n 2 -d 3 -r 1 -fa 1");
    assert!(calls.lines().all(|call| call == asked), "{calls}");
    let text = bench(&place, &model, &["--against", &program, "--kv", "tq4"]).success();
    for part in ["llama.cpp", "ratio", "its cache is f16"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
#[cfg(unix)]
fn what_is_wrong_with_the_other_program_is_said() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let against = |program: &str| bench(&place, &model, &["--against", program]);
    against("no/such/program").failure(&["--against", "no/such/program cannot be run", "no such program"]);
    against(&model).failure(&["--against", "cannot be run"]);
    against(&peer(&place, "echo 'all is lost' >&2; exit 3")).failure(&[
        "--against",
        "failed",
        "3",
        "all is lost",
    ]);
    against(&peer(&place, "echo '| model | size |'")).failure(&["--against", "no times", "no JSON list"]);
    against(&peer(&place, r#"echo '[{"n_prompt": 8, "n_gen": 0, "avg_ts": 4.0}]'"#))
        .failure(&["--against", "no test of what was asked for"]);
    let args = ["bench", "--synthetic", "gemma4-e2b:q4_0", "--against", "peer"];
    place.run(&args).failure(&["--synthetic", "--against"]);
    bench(&place, &model, &["--against", "peer", "--sequences", "2"]).failure(&["--sequences", "--against"]);
}
