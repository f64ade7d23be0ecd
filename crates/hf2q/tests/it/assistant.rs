//! Drafts by Gemma 4's assistants.

use std::path::PathBuf;

use crate::support::Place;

const PROMPT: &str = "Once upon a time there was";

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn answers_are_those_without_an_assistant() {
    let place = Place::new();
    let dense = ("tiny/gemma4-dense", "assistant/dense");
    for (model, drafter) in
        [dense, ("tiny/gemma4-moe", "assistant/unified"), ("tiny/gemma4-ple", "assistant/ordered")]
    {
        let (model, drafter) = (fixture(model), fixture(drafter));
        for sampling in [["--temperature", "0"], ["--temperature", "0.9"]] {
            let args = [&["run", &model, PROMPT, "--raw", "-n", "24", "--seed", "5"], &sampling[..]].concat();
            let plain = place.run(&args).success();
            let drafted = place.run(&[&args[..], &["--draft", &drafter, "--draft-depth", "4"]].concat());
            assert!(!drafted.stderr.contains("get no drafts"), "{}", drafted.stderr);
            assert_eq!(drafted.success(), plain, "{model} {sampling:?}");
        }
    }
}

#[test]
fn an_assistant_of_another_model_is_refused_by_the_first_difference() {
    let place = Place::new();
    let (model, drafter) = (fixture("tiny/gemma4-dense"), fixture("assistant/unified"));
    let run = place.run(&["run", &model, PROMPT, "--raw", "--draft", &drafter]);
    run.failure(&[
        "--draft",
        "belongs to another model",
        "key and value heads of global layers is 1",
        "2 in",
    ]);
    let other = fixture("tiny/llama");
    let run = place.run(&["run", &other, PROMPT, "--raw", "--draft", &drafter]);
    run.failure(&["architecture of the model is gemma4", "llama in the model's"]);
}

#[test]
fn a_file_of_an_assistant_says_what_it_is() {
    let place = Place::new();
    let file = place.path("a.gguf").to_str().unwrap().to_owned();
    let target = fixture("tiny/gemma4-ple");
    let convert = ["convert", &fixture("assistant/ordered"), "--target", &target, "-t", "q8_0", "-o", &file];
    place.run(&convert).success();
    let shown = place.run(&["inspect", &file, "--tensors"]).success();
    for part in ["gemma4-assistant", "masked_embd_ordering", "i32", "nextn.pre_projection.weight"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    place.run(&["verify", &file, "--against", &fixture("assistant/ordered")]).success();
    // With or without its target's tokens it answers nothing by itself.
    for model in [file, fixture("assistant/dense")] {
        place.run(&["run", &model, PROMPT, "--raw"]).failure(&["only drafts for another one", "--draft"]);
        place.run(&["bench", &model]).failure(&["only drafts for another one"]);
    }
}
