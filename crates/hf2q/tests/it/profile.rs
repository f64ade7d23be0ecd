//! `hf2q profile` and `hf2q bench --skip`: where the time goes.

use serde_json::Value;

use crate::support::Place;

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.run(args).success()).unwrap()
}

#[test]
fn tables_name_what_is_expensive() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let args = [
        "profile", &model, "-p", "20", "-n", "3", "-d", "10", "--by", "op,kind", "--by", "layer", "--top",
        "5",
    ];
    let text = place.run(&[&args[..], &["--kv", "k=f32,v=f16"]].concat()).success();
    for part in [
        "roofline: ",
        "GOP/s int8",
        "prompt 20 at depth 10: ",
        "decode 3 at depth 10: ",
        "one by one sum up to",
        "by op",
        "by kind",
        "expert_mat_mul q8_0",
        "by layer",
        "cache k=f32,v=f16",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // Five lines and what is left of them, for two phases and three tables each; there are fewer layers.
    let rest = text.lines().filter(|l| l.split_whitespace().nth(1) == Some("more")).count();
    assert_eq!(rest, 6, "{text}");
}

#[test]
fn json_has_every_operation_and_stacks_sum_up_to_it() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let got = json(&place, &["profile", &model, "-p", "0", "-n", "4", "--json", "--folded", "stacks.txt"]);
    let [phase] = &got["phases"].as_array().unwrap()[..] else { panic!("one phase") };
    assert_eq!((&phase["phase"], &phase["steps"]), (&"decode".into(), &4.into()));
    let operations = phase["operations"].as_array().unwrap();
    let sum: f64 = operations.iter().map(|o| o["seconds"].as_f64().unwrap()).sum();
    assert!((sum / phase["sum_seconds"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    let find = |op: &str| operations.iter().find(|o| o["op"] == op && o["preparation"].is_null()).unwrap();
    let attend = find("L00.attn.attend");
    assert_eq!(
        (&attend["kind"], &attend["layer"], &attend["calls"]),
        (&"attention f16".into(), &"L00".into(), &4.into())
    );
    assert!(attend["cache_bytes"].as_u64().unwrap() > 0 && attend["bound_seconds"].as_f64().unwrap() > 0.0);
    assert!(find("output")["quantized_flops"].as_u64().unwrap() > 0);
    let stacks = std::fs::read_to_string(place.path("stacks.txt")).unwrap();
    let micros: f64 = stacks.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    // Each stack is rounded.
    assert!((micros - sum * 1e6).abs() <= 0.5 * operations.len() as f64 + 1.0, "{micros} and {sum}");
    assert!(stacks.lines().any(|l| l.starts_with("decode;L00;attn;q_proj;quantize ")), "{stacks}");
}

#[test]
fn mistakes_are_told_before_the_work() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    std::fs::write(place.path("mine.txt"), "mine").unwrap();
    for (args, parts) in [
        (&["-p", "0", "-n", "0"][..], &["nothing to measure"][..]),
        (&["--folded", "mine.txt"], &["mine.txt exists already", "--force"]),
        (&["--folded", &model, "--force"], &["--folded", "is an input"]),
        (&["--folded", "no/mine.txt"], &["there is no folder no"]),
        (&["--by", "colour"], &["--by", "op, kind, layer"]),
        (&["--top", "0"], &["--top"]),
        (&["--force"], &["--folded"]),
    ] {
        place.run(&[&["profile", &model], args].concat()).failure(parts);
    }
    assert_eq!(std::fs::read_to_string(place.path("mine.txt")).unwrap(), "mine");
    place.run(&["profile"]).failure(&["MODEL"]);
}

#[test]
fn operations_can_be_left_out_of_a_measurement() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let bench = |more: &[&str]| {
        let args = [&["bench", &model, "-p", "8", "-n", "2", "-r", "1"], more].concat();
        place.run(&args)
    };
    let text = bench(&["--skip", "L0[0]*", "--skip", "output"]);
    text.failure(&["--skip", "\"L0[0]*\"", "near names", "L00."]);
    let text = bench(&["--skip", "L00.attn.?_proj", "--skip", "output"]).success();
    assert!(
        text.contains(
            "without L00.attn.q_proj, L00.attn.k_proj, L00.attn.v_proj, L00.attn.o_proj, output: only"
        ),
        "{text}"
    );
    let text = bench(&["--skip", "*_proj"]).success();
    assert!(
        text.contains(" operations (L00.attn.q_proj, ") && text.contains(" more): only the time"),
        "{text}"
    );
    bench(&["--skip", "*.moe.*"]).failure(&["L00.moe.route cannot be skipped"]);
    let json: Value = serde_json::from_str(&bench(&["--skip", "output", "--json"]).success()).unwrap();
    assert_eq!(json["skipped"], serde_json::json!(["output"]));
    assert!(!bench(&[]).success().contains("without"));
}

#[test]
#[cfg(target_os = "linux")]
fn weights_that_fit_into_no_memory_are_not_made() {
    // Some hundred gigabytes on any machine that runs tests with less.
    let message = Place::new().run(&["bench", "--synthetic", "gemma4-31b:f32", "-n", "0", "-p", "1"]);
    if !message.ok {
        message.failure(&["gemma4-31b:f32 needs 114.", "GiB", "of memory is free"]);
    }
}
