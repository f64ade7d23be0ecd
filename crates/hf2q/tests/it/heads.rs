//! Drafts by the demo's EAGLE-3 head.

use std::path::PathBuf;

use crate::support::Place;

fn demo(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn answers_are_those_without_a_head() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let head = place.path("head.gguf").to_str().unwrap().to_owned();
    let convert = ["convert", &demo("eagle3-tiny-moe"), "--target", &model, "-t", "q8_0", "-o", &head];
    place.run(&convert).success();
    let shown = place.run(&["inspect", &head, "--tensors"]).success();
    for part in ["eagle3", "[2, 4, 6]", "blk.0.attn_norm_2.weight", "tokenizer.ggml.tokens"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    place.run(&["verify", &head]).success();
    let prompt = "Who was the King of Great Britain?";
    for sampling in [["--temperature", "0"], ["--temperature", "0.8"]] {
        let args = ["run", &model, prompt, "-n", "40", "-t", "1", "--device", "cpu", "--seed", "3"];
        let args = [&args[..], &sampling[..]].concat();
        let plain = place.run(&[&args[..], &["--draft", "none"]].concat()).success();
        let drafted = place.run(&[&args[..], &["--draft", &head, "--draft-depth", "3"]].concat());
        assert!(drafted.stderr.contains(" guesses right"), "{}", drafted.stderr);
        assert!(!drafted.stderr.contains(" 0 of "), "{}", drafted.stderr);
        assert_eq!(drafted.success(), plain, "{sampling:?}");
    }
}

#[test]
fn a_head_is_refused_where_it_does_not_fit() {
    let place = Place::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny/gemma4-dense");
    let run = place.run(&["run", fixture, "x", "--raw", "-n", "2", "--draft", &demo("eagle3-tiny-moe")]);
    run.failure(&["--draft", "belongs to another model: vocabulary is 4096"]);
    let head = demo("eagle3-tiny-moe");
    place.run(&["run", &head, "x"]).failure(&["eagle3", "draft"]);
    let other = ["convert", &head, "--target", fixture, "-o", "head.gguf"];
    place.run(&other).failure(&["vocabulary is 4096"]);
    assert!(!place.path("head.gguf").exists());
}
