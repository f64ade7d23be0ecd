//! `hf2q gguf`: metadata of files that exist.

use std::path::Path;

use hf2q_gguf::Gguf;

use crate::support::{Place, bundled};

/// Data of all tensors with their names.
fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let file = Gguf::open(path).unwrap();
    file.tensors().iter().map(|t| (t.name.clone(), file.data(t).to_vec())).collect()
}

fn get(place: &Place, file: &str, key: &str) -> String {
    place.run(&["gguf", "get", file, key]).success().trim_end().to_owned()
}

#[test]
fn keys_are_listed_set_and_removed() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let before = tensors(&place.path(&model));
    let list = place.run(&["gguf", "get", &model]).success();
    for part in ["general.architecture", "string", "\"gemma4\"", "array:string", "4096 values"] {
        assert!(list.contains(part), "{part:?} is not in {list}");
    }
    let set =
        ["gguf", "set", &model, "general.name=A fox", "general.sampling.temp=0.25", "x.list:array:u8=[1,2]"];
    let out = place.run(&set).success();
    for part in ["\"A fox\"", "->", "(absent) -> 2 values [1, 2]", "Wrote"] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    assert_eq!(get(&place, &model, "general.name"), "A fox");
    assert_eq!(get(&place, &model, "general.sampling.temp"), "0.25");
    assert_eq!(get(&place, &model, "x.list"), "[1,2]");
    let json = place.run(&["gguf", "get", &model, "--json", "x.list", "general.name"]).success();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::json!({ "x.list": [1, 2], "general.name": "A fox" }));
    place.run(&["gguf", "unset", &model, "x.list"]).success();
    place.run(&["gguf", "get", &model, "x.list"]).failure(&["x.list"]);
    assert!(tensors(&place.path(&model)) == before);
    place.run(&["run", &model, "x", "-n", "2", "-q"]).success();
    assert_eq!(place.files(), [model]);
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let before = std::fs::read(place.path(&model)).unwrap();
    let out = place.run(&["gguf", "set", &model, "general.name=other", "--dry-run"]).success();
    assert!(out.contains("-> \"other\"") && out.contains("Nothing is written"), "{out}");
    let out = place.run(&["gguf", "set", &model, "general.architecture=gemma4"]);
    out.failure(&["general.architecture", "--force"]);
    let name = get(&place, &model, "general.name");
    let out = place.run(&["gguf", "set", &model, &format!("general.name={name}")]).success();
    assert!(out.contains("Nothing to change"), "{out}");
    assert!(std::fs::read(place.path(&model)).unwrap() == before);
}

#[test]
fn edits_that_would_break_the_model_are_refused() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q8_0");
    let before = std::fs::read(place.path(&model)).unwrap();
    for (edit, parts) in [
        (&["set", "general.alignment:u32=64"][..], &["general.alignment", "places of all tensors"][..]),
        (&["set", "split.count:u16=3"], &["split.count"]),
        (&["set", "general.architecture=llama"], &["general.architecture", "--force"]),
        (&["set", "gemma4.block_count=5"], &["does not load", "sliding_window_pattern", "--force"]),
        (&["set", "gemma4.embedding_length=128"], &["does not load", "--force"]),
        (&["set", "gemma4.block_count=minus"], &["u32", "minus"]),
        (&["set", "tokenizer.ggml.bos_token_id=4096"], &["tokenizer", "4096", "--force"]),
        (&["set", "tokenizer.ggml.tokens=[\"a\"]"], &["4096 tokens", "--force"]),
        (&["set", "tokenizer.chat_template={% if"], &["does not compile", "--force"]),
        (&["set", "tokenizer.chat_template.tools:string={% if"], &["does not compile", "--force"]),
        (&["unset", "tokenizer.ggml.scores"], &["tokenizer.ggml.scores"]),
        (&["unset", "gemma4.context_length"], &["context_length", "--force"]),
        (&["unset", "absent"], &["absent", "not in the file"]),
        (&["set", "no.such.key=1"], &["no.such.key:TYPE=VALUE"]),
        (&["set", "general.name"], &["KEY=VALUE"]),
    ] {
        let args = [&["gguf", edit[0], &model], &edit[1..]].concat();
        let ran = place.run(&args);
        // What is refused is not shown as done before.
        assert_eq!(ran.stdout, "");
        ran.failure(parts);
        assert!(std::fs::read(place.path(&model)).unwrap() == before, "{edit:?}");
    }
    assert_eq!(place.files(), std::slice::from_ref(&model));
    // Not even force makes a file that cannot be read.
    place
        .run(&["gguf", "set", &model, "general.alignment:u32=64", "--force"])
        .failure(&["general.alignment"]);
    let forced =
        place.run(&["gguf", "set", &model, "gemma4.embedding_length=128", "--force", "-o", "forced.gguf"]);
    assert!(forced.ok && forced.stderr.contains("warning"), "{forced:?}");
    place.run(&["verify", "forced.gguf"]).failure(&["the metadata imply [128"]);
}

#[test]
fn templates_are_printed_compiled_and_replaced() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let old = place.run(&["gguf", "template", &model]).success();
    assert!(
        old.contains("{%")
            && old == std::fs::read_to_string(bundled("tiny-dense").join("chat_template.jinja")).unwrap()
    );
    let before = std::fs::read(place.path(&model)).unwrap();
    for (name, text, part) in [
        ("bad.jinja", "{% for x in y %}", "does not compile"),
        ("empty.jinja", " \n", "empty"),
        ("absent.jinja", "", "absent.jinja"),
    ] {
        if !text.is_empty() {
            std::fs::write(place.path(name), text).unwrap();
        }
        place.run(&["gguf", "template", &model, name]).failure(&[part]);
    }
    std::fs::write(place.path("latin.jinja"), [0xe9, b'!']).unwrap();
    place.run(&["gguf", "template", &model, "latin.jinja"]).failure(&["UTF-8"]);
    place.run(&["gguf", "template", &model, "--dry-run"]).failure(&["--dry-run"]);
    assert!(std::fs::read(place.path(&model)).unwrap() == before);
    let new = "{% for m in messages %}{{ m.content }}|{% endfor %}\n";
    place.run_with_input(&["gguf", "template", &model, "-"], new).success();
    assert_eq!(place.run(&["gguf", "template", &model]).success(), new);
    place.run(&["gguf", "unset", &model, "tokenizer.chat_template"]).success();
    place.run(&["gguf", "template", &model]).failure(&["no chat template"]);
    place.run(&["gguf", "set", &model, "tokenizer.chat_template={{ messages }}"]).success();
}

#[test]
fn a_split_model_is_edited_in_its_first_file() {
    let place = Place::new();
    let folder = bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "--split", "2M", "-o", "parts.gguf"]).success();
    let parts: Vec<String> = place.files().into_iter().filter(|f| f.starts_with("parts-")).collect();
    let last = parts.last().unwrap();
    let bytes = |name: &String| std::fs::read(place.path(name)).unwrap();
    let before: Vec<Vec<u8>> = parts.iter().map(bytes).collect();
    place.run(&["gguf", "set", last, "general.name=whole"]).success();
    let after: Vec<Vec<u8>> = parts.iter().map(bytes).collect();
    assert!(after[0] != before[0] && after[1..] == before[1..]);
    assert_eq!(get(&place, last, "general.name"), "whole");
    place.run(&["verify", last, "--against", folder.to_str().unwrap()]).success();
    let out = place.run(&["gguf", "set", last, "general.name=copy", "-o", "copy.gguf"]).success();
    assert_eq!(out.matches("Wrote").count(), parts.len());
    let first = parts[0].replace("parts", "copy");
    assert_eq!(
        (get(&place, &first, "general.name"), get(&place, last, "general.name")),
        ("copy".into(), "whole".into())
    );
    place.run(&["gguf", "set", last, "general.name=again", "-o", "copy.gguf"]).failure(&["exists already"]);
    place.run(&["gguf", "unset", last, "split.count", "split.no"]).failure(&["split"]);
    std::fs::remove_file(place.path(&parts[1])).unwrap();
    place.run(&["gguf", "set", last, "general.name=lost"]).failure(&[&parts[1]]);
}

#[test]
fn links_are_replaced_and_said_to_be() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let before = std::fs::read(place.path(&model)).unwrap();
    std::os::unix::fs::symlink(&model, place.path("link.gguf")).unwrap();
    let ran = place.run(&["gguf", "set", "link.gguf", "general.name=linked"]);
    assert!(ran.ok && ran.stderr.contains("link.gguf was a link"), "{ran:?}");
    assert!(std::fs::read(place.path(&model)).unwrap() == before);
    assert_eq!(get(&place, "link.gguf", "general.name"), "linked");
}

#[test]
fn what_is_no_gguf_file_is_left_alone() {
    let place = Place::new();
    for (name, bytes, part) in [
        ("empty.gguf", &b""[..], "empty"),
        ("text.gguf", b"hello there", "GGUF"),
        ("big.gguf", b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"),
        ("fugg.gguf", b"FUGG\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"),
        ("keys.gguf", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\x65\xcd\x1d\0\0\0\0", "metadata keys"),
    ] {
        std::fs::write(place.path(name), bytes).unwrap();
        for args in [
            &["gguf", "get", name][..],
            &["gguf", "set", name, "general.name=x", "--force"],
            &["gguf", "unset", name, "general.name"],
            &["gguf", "template", name],
        ] {
            place.run(args).failure(&[name, part]);
        }
        assert_eq!(std::fs::read(place.path(name)).unwrap(), bytes);
    }
    place.run(&["gguf", "set", ".", "general.name=x"]).failure(&["a folder"]);
}

#[test]
fn a_full_disk_leaves_the_original_alone() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let before = std::fs::read(place.path(&model)).unwrap();
    // A limit on file sizes fails writes as a full disk does.
    let run = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" gguf set \"$1\" general.name=x"])
        .args([env!("CARGO_BIN_EXE_hf2q"), &model])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let error = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && error.contains("cannot write it"), "{error}");
    assert!(std::fs::read(place.path(&model)).unwrap() == before);
    assert_eq!(place.files(), [model]);
}
