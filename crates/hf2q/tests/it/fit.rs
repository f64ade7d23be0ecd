//! `hf2q fit` and `hf2q plan --kv`: what a model takes of memory.

use serde_json::Value;

use crate::support::{Place, bundled};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_checkpoint_is_sized_as_its_conversion() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q4_k_m");
    // Of recent positions there are as many as a chunk has, so in long ones f16 may take less than codes.
    let args = ["--memory", "4G", "--json", "-c", "4000", "--chunk", "64", "--threads", "2"];
    let file = json(&place.run(&[&["fit", &model][..], &args].concat()).success());
    let folder = bundled("tiny-moe");
    let folder = [&["fit", folder.to_str().unwrap(), "--type", "q4_k_m"][..], &args].concat();
    let checkpoint = json(&place.run(&folder).success());
    assert_eq!(file["candidates"], checkpoint["candidates"]);
    let again = [&["fit", &model, "--type", "q4_k_m"][..], &args].concat();
    assert_eq!(json(&place.run(&again).success())["candidates"], file["candidates"]);
    assert_eq!((&file["weights"], &file["best"]), (&checkpoint["weights"], &Value::from("f16")));
    let of = |key: &str| {
        let candidates = file["candidates"].as_array().unwrap().iter();
        candidates.map(|c| c[key].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    for sizes in [of("bytes_per_token"), of("caches")] {
        assert!(sizes.len() > 2 && sizes.is_sorted_by(|a, b| a > b), "the best first: {sizes:?}");
    }
    for candidate in file["candidates"].as_array().unwrap() {
        let fixed = candidate["fixed_bytes_per_sequence"].as_u64().unwrap();
        assert_eq!(fixed > 0, candidate["kv"].as_str().unwrap().contains("tq"), "{candidate}");
    }
    let first = &file["candidates"][0];
    let sum = ["caches", "activations"].map(|key| first[key].as_u64().unwrap()).iter().sum::<u64>();
    assert_eq!(first["total"].as_u64().unwrap(), sum + file["weights"].as_u64().unwrap());
}

#[test]
fn the_longest_context_fits_and_a_longer_one_does_not() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let fit = |memory: &str, context: &str| {
        let args = ["fit", &model, "--threads", "2", "--kv", "f32", "--kv", "q8_0", "--json"];
        place.run(&[&args[..], &["--memory", memory, "-c", context, "--chunk", "16"]].concat())
    };
    let total = |context: &str| json(&fit("4G", context).success())["candidates"][0]["total"].to_string();
    let memory = total("128");
    let found = json(&fit(&memory, "64").success());
    assert_eq!(found["candidates"][0]["largest_context"], 128);
    assert_eq!(json(&fit(&memory, "129").success())["best"], "q8_0");
    let nothing = fit("1M", "129");
    assert_eq!(json(&nothing.stdout)["best"], Value::Null);
    nothing.failure(&["1.0 MiB is too little for 1 sequence of 129 tokens: q8_0 needs"]);
}

#[test]
fn the_table_gives_advice() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let text = place.run(&["fit", &model, "--memory", "4G"]).success();
    for part in [
        "of weights; 1 sequence of ",
        "memory: 4.0 GiB given",
        "longest context",
        "advice: f16, the default, fits",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_context_longer_than_the_models_is_no_secret() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let ran = place.run(&["fit", &model, "-c", "5000", "--kv", "tq4"]);
    assert!(ran.stderr.contains("--context 5000 is more than the model's context of 4096 tokens"), "{ran:?}");
    assert!(ran.success().contains("advice: take --kv 'tq4', which leaves "));
    let ran = place.run(&["run", &model, "x", "--raw", "-n", "1", "-c", "5000"]);
    assert!(ran.stderr.contains("--context 5000 is more than the model's context of 4096 tokens"), "{ran:?}");
    ran.success();
}

#[test]
fn a_plan_is_of_the_formats_that_are_asked_for() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let last =
        |kv: &str| place.run(&["plan", &model, "--kv", kv]).success().lines().last().unwrap().to_owned();
    assert_ne!(last("f32"), last("q8_0"));
    // Exact recent positions take no memory for further tokens, and layers with two caches are no more layers.
    let (alone, exact) = (last("tq4,recent:off"), last("tq4"));
    assert!(alone.ends_with("positions (6 of 6 layers own one)"), "{alone}");
    let recent = exact.strip_prefix(&alone).unwrap_or_else(|| panic!("{exact:?} after {alone:?}"));
    assert_eq!(recent, "; 384.0 KiB for the recent positions of a sequence (6 layers)");
    place.run(&["plan", &model, "--kv", "tq9"]).failure(&["unknown format \"tq9\""]);
}
