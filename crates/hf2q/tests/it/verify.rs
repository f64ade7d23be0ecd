//! `hf2q verify`: sound files pass, others fail with all that is wrong.

use crate::support::{Place, bundled};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_converted_model_passes_alone_and_against_its_source() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "q4_0");
    let text = place.run(&["verify", &model]).success();
    assert!(text.contains("Complete, no damaged block") && !text.contains("relative"), "{text}");
    let folder = bundled("tiny-moe");
    let against = ["verify", &model, "--against", folder.to_str().unwrap()];
    let text = place.run(&against).success();
    for part in ["compared with", "relative", "cosine", "bf16", "q4_0", "that are closer, see --all", "all "]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let all = place.run(&[&against[..], &["--all"]].concat()).success();
    assert!(all.contains("output_norm.weight") && all.lines().count() > text.lines().count() + 20, "{all}");
    let found = json(&place.run(&[&against[..], &["--json"]].concat()).success());
    assert_eq!(found["ok"], true);
    let error = found["deviation"]["relative_error"].as_f64().unwrap();
    assert!((0.01..0.2).contains(&error), "{error}");
    let tensors = found["tensors"].as_array().unwrap();
    let norm = tensors.iter().find(|t| t["name"] == "output_norm.weight").unwrap();
    assert_eq!((&norm["type"], &norm["deviation"]["relative_error"]), (&"f32".into(), &0.0.into()));
    // A GGUF file is a source too.
    let exact = place.converted("tiny-moe", "bf16");
    place.run(&["verify", &model, "--against", &exact]).success();
    let same = place.run(&["verify", &exact, "--against", &exact, "--max-error", "0"]).success();
    assert!(same.contains("every value equals"), "{same}");
}

#[test]
fn models_of_two_kinds_are_not_compared() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let other = bundled("../../fixtures/tiny/llama");
    let parts = ["tiny-dense-q8_0.gguf is a gemma4 model", "a llama one"];
    place.run(&["verify", &model, "--against", other.to_str().unwrap()]).failure(&parts);
}

#[test]
fn a_limit_fails_and_says_which() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q4_0");
    let folder = bundled("tiny-dense");
    let args = ["verify", &model, "--against", folder.to_str().unwrap(), "--max-error", "0.05"];
    let ran = place.run(&args);
    assert!(ran.stdout.contains("wrong: ") && ran.stdout.contains("more problems, see --all"), "{ran:?}");
    ran.failure(&["problems", "is above 0.05"]);
    let found = json(&place.run(&[&args[..], &["--json"]].concat()).stdout);
    assert_eq!(found["ok"], false);
    place.run(&["verify", &model, "--max-error", "0.05"]).failure(&["--against"]);
    place.run(&["verify", &model, "--against", &model, "--max-error", "-1"]).failure(&["-1"]);
    place.run(&["verify", &model, "--against", "nowhere"]).failure(&["nowhere"]);
}

#[test]
fn another_model_is_told_apart() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let other = bundled("tiny-moe");
    place.run(&["verify", &model, "--against", other.to_str().unwrap()]).failure(&["problems"]);
    // The same shapes with other weights: one tensor's bytes in the place of another's.
    let file = hf2q_gguf::Gguf::open(&place.path(&model)).unwrap();
    let (a, b) = (file.tensor("blk.0.attn_q.weight").unwrap(), file.tensor("blk.1.attn_q.weight").unwrap());
    let mut bytes = std::fs::read(place.path(&model)).unwrap();
    bytes[b.offset as usize..][..b.bytes as usize].copy_from_slice(file.data(a));
    std::fs::write(place.path("swapped.gguf"), bytes).unwrap();
    place.run(&["verify", "swapped.gguf"]).success();
    let folder = bundled("tiny-dense");
    place
        .run(&["verify", "swapped.gguf", "--against", folder.to_str().unwrap()])
        .failure(&["blk.1.attn_q.weight", "relative error 1."]);
}

#[test]
fn damage_is_found() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "f32");
    let file = hf2q_gguf::Gguf::open(&place.path(&model)).unwrap();
    let sound = std::fs::read(place.path(&model)).unwrap();
    let tensor = file.tensor("blk.2.ffn_down.weight").unwrap();
    let mut nan = sound.clone();
    nan[tensor.offset as usize + 400..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(place.path("nan.gguf"), nan).unwrap();
    place.run(&["verify", "nan.gguf"]).failure(&["blk.2.ffn_down.weight: block 100: a value is NaN"]);
    let name = sound.windows(19).position(|w| w == b"blk.1.attn_q.weight").unwrap();
    let mut renamed = sound.clone();
    renamed[name + 4] = b'7';
    std::fs::write(place.path("renamed.gguf"), renamed).unwrap();
    let ran = place.run(&["verify", "renamed.gguf"]);
    assert!(ran.stdout.contains("note: 1 tensors are read by nothing"), "{ran:?}");
    ran.failure(&["blk.1.attn_q.weight is missing"]);
    std::fs::write(place.path("cut.gguf"), &sound[..sound.len() - 1000]).unwrap();
    place.run(&["verify", "cut.gguf"]).failure(&["cut.gguf", "promises", "incomplete"]);
    place.run(&["gguf", "unset", &model, "tokenizer.ggml.model", "--force"]).success();
    place.run(&["verify", &model]).failure(&["tokenizer"]);
}

#[test]
fn a_size_that_wraps_is_refused() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "f32");
    let mut bytes = std::fs::read(place.path(&model)).unwrap();
    let name = bytes.windows(17).position(|w| w == b"token_embd.weight").unwrap();
    // The name, the number of dimensions, the first dimension; then the second.
    let at = name + 17 + 4 + 8;
    bytes[at..at + 8].copy_from_slice(&((1_u64 << 42) + 1).to_le_bytes());
    std::fs::write(place.path("wraps.gguf"), bytes).unwrap();
    for args in [
        &["verify", "wraps.gguf"][..],
        &["gguf", "get", "wraps.gguf"],
        &["gguf", "set", "wraps.gguf", "general.name=x"],
    ] {
        place.run(args).failure(&["token_embd.weight"]);
    }
}
