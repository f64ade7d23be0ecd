//! Damaged and odd GGUF files: refused with a message of their own, by every command that opens one.

use crate::support::Place;

/// Each command that reads a model, on `file`.
fn refused_everywhere(place: &Place, file: &str, parts: &[&str]) {
    let before = place.files();
    for args in [
        &["inspect", file][..],
        &["run", file, "x"],
        &["plan", file],
        &["bench", file],
        &["tokenize", file, "x"],
        &["verify", file],
        &["gguf", "get", file],
        &["gguf", "set", file, "general.name=x", "--force"],
    ] {
        place.run(args).failure(parts);
    }
    assert_eq!(place.files(), before);
}

fn header(kv: u64, tensors: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(kv.to_le_bytes());
    bytes
}

#[test]
fn files_that_are_something_else() {
    let place = Place::new();
    for (name, bytes, part) in [
        ("empty.gguf", &b""[..], "empty"),
        ("text.gguf", b"hello there, this is no model", "GGUF"),
        ("fugg.gguf", b"FUGG\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"),
        ("old.gguf", b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0", "version 1"),
        ("big.gguf", b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"),
    ] {
        std::fs::write(place.path(name), bytes).unwrap();
        refused_everywhere(&place, name, &[name, part]);
    }
    refused_everywhere(&place, "absent.gguf", &["absent.gguf"]);
}

#[test]
fn counts_beyond_the_file() {
    let place = Place::new();
    for (name, bytes) in [("keys.gguf", header(500_000_000, 0)), ("tensors.gguf", header(0, 1 << 63))] {
        std::fs::write(place.path(name), bytes).unwrap();
        refused_everywhere(&place, name, &[name]);
    }
}

#[test]
fn a_file_that_is_cut_off() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let bytes = std::fs::read(place.path(&model)).unwrap();
    std::fs::write(place.path("cut.gguf"), &bytes[..bytes.len() - 100_000]).unwrap();
    refused_everywhere(&place, "cut.gguf", &["cut.gguf", &bytes.len().to_string()[..2]]);
}

#[test]
fn a_shard_without_its_set() {
    let place = Place::new();
    let folder = crate::support::bundled("tiny-dense");
    place.run(&["convert", folder.to_str().unwrap(), "--split", "2M", "-o", "parts.gguf"]).success();
    let parts: Vec<String> = place.files().into_iter().filter(|f| f.starts_with("parts-")).collect();
    std::fs::remove_file(place.path(&parts[1])).unwrap();
    refused_everywhere(&place, &parts[0], &[&parts[1]]);
}

#[test]
fn names_cannot_steer_a_terminal() {
    let place = Place::new();
    let mut bytes = header(1, 0);
    let key = "a\u{1b}[2Jb";
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend(key.as_bytes());
    bytes.extend([7, 0, 0, 0, 1]);
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    std::fs::write(place.path("key.gguf"), bytes).unwrap();
    let text = place.run(&["inspect", "key.gguf"]).success();
    assert!(text.contains("a\\u{1b}[2Jb") && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn a_nan_weight_is_found() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "f32");
    let mut bytes = std::fs::read(place.path(&model)).unwrap();
    let at = bytes.len() - 4096;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(place.path("nan.gguf"), bytes).unwrap();
    place.run(&["inspect", "nan.gguf"]).success();
    place.run(&["inspect", "nan.gguf", "--check"]).failure(&["damaged"]);
}
