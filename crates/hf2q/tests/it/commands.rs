//! Every command on a good model.

use crate::support::{Place, bundled};

const PROMPT: &str = "Once upon a time there was a little fox who";

fn greedy(place: &Place, model: &str, more: &[&str]) -> String {
    let args = ["run", model, PROMPT, "--raw", "--temperature", "0", "-n", "12"];
    place.run(&[&args[..], more].concat()).success()
}

#[test]
fn demo_converts_and_speaks() {
    let place = Place::new();
    let out = place.run(&["demo"]).success();
    for part in ["1. Convert", "tensors", "2. Let it write", PROMPT, "3. Ask it", "hf2q chat"] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
}

#[test]
fn answers_are_the_golden_ones() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "f32");
    // The first words that transformers continues with (fixtures/demo/tiny-moe.json, prompt "story").
    assert!(greedy(&place, &model, &[]).starts_with(" was sitting on the edge of the "));
}

#[test]
fn neither_threads_nor_chunks_nor_instruction_sets_change_a_quantized_answer() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let plain = greedy(&place, &model, &[]);
    for more in [["--threads", "1"], ["--threads", "3"], ["--chunk", "3"], ["--isa", "portable"]] {
        assert_eq!(greedy(&place, &model, &more), plain, "{more:?}");
    }
}

#[test]
fn caches_have_the_formats_that_are_asked_for() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    for kv in ["f32", "k=tq8,v=tq6", "global:tq4;sliding:k=bf16,v=q8_0"] {
        assert!(greedy(&place, &model, &["--kv", kv]).split_whitespace().count() > 3, "{kv}");
    }
    place
        .run(&["run", &model, PROMPT, "--kv", "k=tq7"])
        .failure(&["unknown format \"tq7\"", "f32, f16, bf16, q8_0, tq2, tq3, tq4, tq5, tq6, tq8"]);
    // Heads of 32 in its sliding layers.
    let narrow = bundled("../../fixtures/tiny/gemma4-dense");
    place
        .run(&["bench", narrow.to_str().unwrap(), "--kv", "global:tq4,sliding:k=tq3"])
        .failure(&["keys in heads of 32 cannot be tq3", "f32, f16, bf16, q8_0"]);
}

#[test]
fn a_seed_repeats_an_answer() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let run = |seed: &str| place.run(&["run", &model, PROMPT, "--raw", "-n", "24", "--seed", seed]).success();
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn a_stop_text_ends_the_answer_and_is_not_shown() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let whole = greedy(&place, &model, &[]);
    let stop: String = whole.trim().chars().skip(6).take(5).collect();
    let cut = greedy(&place, &model, &["--stop", &stop]);
    assert_eq!(cut.trim_end_matches('\n'), &whole[..whole.find(&stop).unwrap()]);
}

#[test]
fn a_continuation_ends_somewhere_and_says_so() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    place.run(&["gguf", "unset", &model, "tokenizer.chat_template", "-o", "base.gguf"]).success();
    let endless = ["--temperature", "0", "--logit-bias", "1=-1000", "--logit-bias", "106=-1000"];
    let ran = place.run(&[&["run", "base.gguf", PROMPT], &endless[..]].concat());
    assert!(ran.ok && ran.stderr.contains("answer 256 tokens"), "{}", ran.stderr);
    assert!(ran.stderr.contains("cut at 256 tokens (--max-tokens)"), "{}", ran.stderr);
    let ran = place.run(&[&["run", "base.gguf", PROMPT, "-n", "300"], &endless[..]].concat());
    assert!(ran.ok && ran.stderr.contains("answer 300 tokens"), "{}", ran.stderr);
    let ran = place.run(&["run", "base.gguf", PROMPT, "-n", "1"]);
    assert!(
        ran.ok && ran.stderr.contains("answer 1 token ") && ran.stderr.contains("cut at 1 token "),
        "{}",
        ran.stderr
    );
}

#[test]
fn prompts_come_from_standard_input_too() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let args = ["run", &model, "--raw", "--temperature", "0", "-n", "12"];
    assert_eq!(place.run_with_input(&args, PROMPT).success(), greedy(&place, &model, &[]));
}

#[test]
fn a_checkpoint_folder_is_a_model_and_is_converted_once() {
    let place = Place::new();
    let folder = bundled("tiny-dense");
    let args = ["run", folder.to_str().unwrap(), PROMPT, "--raw", "-n", "4"];
    let first = place.run(&args);
    assert!(first.ok && first.stderr.contains("Converting"), "{first:?}");
    let second = place.run(&args);
    assert!(second.ok && !second.stderr.contains("Converting"), "{second:?}");
}

#[test]
fn a_split_file_is_the_same_model() {
    let place = Place::new();
    let whole = place.converted("tiny-dense", "q8_0");
    let folder = bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "--split", "2M", "-o", "parts.gguf"]).success();
    let parts: Vec<String> = place.files().into_iter().filter(|f| f.starts_with("parts-")).collect();
    assert!(parts.len() > 2, "{parts:?}");
    assert_eq!(greedy(&place, parts.last().unwrap(), &[]), greedy(&place, &whole, &[]));
}

#[test]
fn chat_remembers_and_takes_commands() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let input = "Hello.\nTell me more.\n/retry\n/nonsense\n/help\n/reset\nHello.\n/exit\n";
    let ran = place.run_with_input(&["chat", &model, "-n", "8", "--temperature", "0"], input);
    assert!(ran.ok, "{ran:?}");
    // Another answer computes one token of the prompt.
    let all_but_one = |line: &str| {
        let numbers: Vec<usize> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        line.contains("reused") && numbers[0] == numbers[1] + 1
    };
    assert!(ran.stderr.lines().any(all_but_one), "{}", ran.stderr);
    for part in ["reused", "/nonsense is no command", "forget the conversation", "forgotten"] {
        assert!(ran.stderr.contains(part), "{part:?} is not in {}", ran.stderr);
    }
}

#[test]
fn inspect_shows_and_checks() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q4_0");
    let text = place.run(&["inspect", &model, "--tensors", "--check"]).success();
    for part in ["general.architecture", "gemma4", "q4_0", "blk.0.ffn_gate_up_exps.weight", "No NaN"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&place.run(&["inspect", &model, "--json"]).success()).unwrap();
    assert_eq!(json["metadata"]["general.architecture"], "gemma4");
}

#[test]
fn inspect_takes_a_folder_with_one_model() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    assert!(place.run(&["inspect", "."]).success().contains(&model));
    std::fs::copy(place.path(&model), place.path("other.gguf")).unwrap();
    place.run(&["inspect", "."]).failure(&["2 models", "name one", ".gguf"]);
    let checkpoint = bundled("tiny-dense");
    place.run(&["inspect", checkpoint.to_str().unwrap()]).failure(&["a checkpoint", "hf2q convert"]);
}

#[test]
fn habits_from_elsewhere_get_a_hint() {
    let place = Place::new();
    place.run(&["ps"]).failure(&["unrecognized subcommand", "hint: ", "/v1/models"]);
    place.run(&["run", "model.gguf", "-ngl", "99"]).failure(&["hint: ", "--device cuda"]);
    assert_eq!(place.run(&["quantize", "a.gguf", "b.gguf", "q4_0"]).code, Some(2));
    let folder = bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "-o", "-"]).failure(&["--output -", "standard output"]);
}

#[test]
fn plan_lists_waves() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let text = place.run(&["plan", &model]).success();
    for part in ["wave 0", "attention", "route", "arena"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn tokenize_keeps_control_spellings_as_text() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let ids = |more: &[&str]| -> Vec<u32> {
        let args = [&["tokenize", &model, "<bos>", "--json"], more].concat();
        serde_json::from_str(&place.run(&args).success()).unwrap()
    };
    assert_eq!(ids(&["--special"]), [2]);
    assert!(!ids(&[]).contains(&2));
}

#[test]
fn bench_and_perplexity_print_json() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&place.run(args).success()).unwrap() };
    let bench = json(&["bench", &model, "-p", "16", "-n", "4", "-r", "2", "--json"]);
    assert!(
        bench["prompt"]["median"].as_f64().unwrap() > 0.0
            && bench["decode"]["median"].as_f64().unwrap() > 0.0
    );
    std::fs::write(place.path("text.txt"), "The fox was sitting on the edge of the forest.").unwrap();
    let perplexity = json(&["perplexity", &model, "text.txt", "--json"]);
    assert!(perplexity["perplexity"].as_f64().unwrap() > 1.0);
}

#[test]
fn numbers_that_cannot_be_are_refused_by_the_name_of_their_flag() {
    let place = Place::new();
    let huge = usize::MAX.to_string();
    for (args, flag) in [
        (["run", "--context", "0"], "--context"),
        (["run", "--context", &huge], "--context"),
        (["run", "--chunk", "0"], "--chunk"),
        (["run", "--threads", &huge], "--threads"),
        (["plan", "--rows", &huge], "--rows"),
        (["plan", "--rows", "0"], "--rows"),
        (["bench", "--depth", &huge], "--depth"),
        (["bench", "--decode", &huge], "--decode"),
        (["perplexity", "--tokens", &huge], "--tokens"),
    ] {
        place.run(&[&args[..], &["model.gguf", "text"]].concat()).failure(&[flag, "is not in"]);
    }
}

#[test]
fn completions_are_printed() {
    assert!(Place::new().run(&["completions", "bash"]).success().contains("hf2q"));
}

#[test]
fn flags_out_of_range_are_refused_by_name() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    for (flags, parts) in [
        (["--logit-bias", "99999=5"], ["--logit-bias", "4096"]),
        (["--chunk", "1000000"], ["--chunk", "8192"]),
        (["--temperature", "-1"], ["temperature", "0 or more"]),
        (["--min-p", "2"], ["min_p", "at most 1"]),
    ] {
        let args = [&["run", &model, "x", "--raw", "-n", "1"], &flags[..]].concat();
        place.run(&args).failure(&parts);
    }
}
