//! Damaged checkpoints: nothing is written, and the message says what is wrong.

use std::path::Path;

use crate::support::Place;

const INDEX: &str = "model.safetensors.index.json";

fn convert(place: &Place, folder: &Path, parts: &[&str]) {
    let before = place.files();
    place.run(&["convert", folder.to_str().unwrap(), "-o", "out.gguf"]).failure(parts);
    assert_eq!(place.files(), before, "a refused conversion leaves nothing");
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn an_index_that_leads_out_of_the_folder() {
    for outside in ["../x.safetensors", "/etc/passwd", "sub/../../x"] {
        let place = Place::new();
        let folder = place.checkpoint_copy("tiny-moe");
        edit(&folder.join(INDEX), "model-00002-of-00002.safetensors", outside);
        convert(&place, &folder, &[outside, "plain file name"]);
    }
}

#[test]
fn a_shard_that_is_not_there() {
    let place = Place::new();
    let folder = place.checkpoint_copy("tiny-moe");
    std::fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    convert(&place, &folder, &["model-00002-of-00002.safetensors is missing", "model.layers"]);
}

#[test]
fn a_shard_that_is_cut_off() {
    let place = Place::new();
    let folder = place.checkpoint_copy("tiny-dense");
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    convert(&place, &folder, &["model.safetensors"]);
}

#[test]
fn a_configuration_for_another_shape() {
    let place = Place::new();
    let folder = place.checkpoint_copy("tiny-dense");
    edit(&folder.join("config.json"), "\"hidden_size\": 256", "\"hidden_size\": 512");
    convert(&place, &folder, &["shape"]);
}

#[test]
fn an_architecture_that_is_not_known() {
    let place = Place::new();
    let folder = place.checkpoint_copy("tiny-dense");
    edit(&folder.join("config.json"), "Gemma4ForCausalLM", "MambaForCausalLM");
    edit(&folder.join("config.json"), "gemma4_text", "mamba");
    convert(&place, &folder, &["mamba"]);
}

#[test]
fn files_that_are_missing_or_malformed() {
    for (file, content, part) in [
        ("config.json", Some("{ \"a\": "), "config.json"),
        ("config.json", None, "config.json"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("tokenizer.json", Some("{}"), "model.type"),
        ("model.safetensors", None, "model.safetensors"),
    ] {
        let place = Place::new();
        let folder = place.checkpoint_copy("tiny-dense");
        match content {
            Some(text) => std::fs::write(folder.join(file), text).unwrap(),
            None => std::fs::remove_file(folder.join(file)).unwrap(),
        }
        convert(&place, &folder, &[part]);
    }
}

#[test]
fn an_output_that_is_an_input() {
    let place = Place::new();
    let folder = place.checkpoint_copy("tiny-dense");
    let input = folder.join("model.safetensors");
    let before = std::fs::read(&input).unwrap();
    let soft = place.path("soft.gguf");
    let hard = place.path("hard.gguf");
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    for output in [&input, &soft, &hard] {
        let args = ["convert", folder.to_str().unwrap(), "--force", "-o", output.to_str().unwrap()];
        place.run(&args).failure(&["same file"]);
        assert!(std::fs::read(&input).unwrap() == before);
    }
    // Any file of the folder is one, whether this conversion reads it or not.
    for name in ["config.json", "tokenizer.json", "notes.txt"] {
        let input = folder.join(name);
        if name == "notes.txt" {
            std::fs::write(&input, "mine").unwrap();
        }
        let before = std::fs::read(&input).unwrap();
        let args = ["convert", folder.to_str().unwrap(), "--force", "-o", input.to_str().unwrap()];
        place.run(&args).failure(&["same file", name]);
        assert!(std::fs::read(&input).unwrap() == before);
    }
}

#[test]
fn an_output_that_exists() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let folder = crate::support::bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "-o", &model]).failure(&["exists already", "--force"]);
    place.run(&["convert", folder.to_str().unwrap(), "-o", &model, "--force"]).success();
}

#[test]
fn a_split_output_that_exists() {
    let place = Place::new();
    let folder = crate::support::bundled("tiny-dense");
    let args = ["convert", folder.to_str().unwrap(), "--split", "4M", "-o", "parts.gguf"];
    place.run(&args).success();
    place.run(&args).failure(&["parts-0000", "exists already", "--force"]);
    place.run(&[&args[..], &["--force"]].concat()).success();
}

#[test]
fn an_output_type_that_is_not_known() {
    let place = Place::new();
    let folder = crate::support::bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "-t", "q9_9"]).failure(&["q9_9", "q8_0"]);
}
