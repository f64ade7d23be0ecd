//! `hf2q imatrix`: the same numbers as llama-imatrix, and no file that is not whole.

use std::path::{Path, PathBuf};

use hf2q_convert::Importance;

use crate::support::{Place, bundled};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn text() -> String {
    fixture("demo/eval.txt").to_str().unwrap().to_owned()
}

/// Mean squares of a tensor are within a percent of their norm, counts within a percent of the rows. A single expert
/// may be further off: a row that is near a tie between two experts may go to either.
#[track_caller]
fn agree(ours: &Importance, theirs: &Importance) {
    for name in theirs.names() {
        let (a, b) = (ours.entry(name).unwrap(), theirs.entry(name).unwrap());
        let (matrices, values) = (b.counts.len(), b.squares.len());
        assert_eq!((a.counts.len(), a.squares.len()), (matrices, values), "{name}");
        let rows = b.counts.iter().max().unwrap();
        let near = |(m, n): (&u64, &u64)| m.abs_diff(*n) * 100 <= *rows;
        assert!(a.counts.iter().zip(&b.counts).all(near), "{name}: {:?} and {:?} rows", a.counts, b.counts);
        let means = |i: &Importance| i.weights_for(name, values / matrices, matrices).unwrap().unwrap();
        let (a, b) = (means(ours), means(theirs));
        let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let apart = norm(&mut a.all().iter().zip(b.all()).map(|(x, y)| x - y));
        let whole = norm(&mut b.all().iter().copied());
        assert!(apart <= 0.01 * whole, "{name}: {apart} apart, of {whole}");
    }
}

#[test]
fn the_demo_model_agrees_with_llama_imatrix() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "f32");
    let said = place.run(&["imatrix", &model, &text(), "--chunks", "4"]).success();
    assert!(
        said.starts_with("Wrote imatrix.gguf: 59 tensors, 4 chunks of 512 tokens, perplexity 3"),
        "{said}"
    );
    let ours = Importance::open(&[place.path("imatrix.gguf")]).unwrap();
    let theirs = Importance::open(&[fixture("importance/tiny-moe.gguf")]).unwrap();
    agree(&ours, &theirs);
    // Inputs that matrices share.
    for (a, b) in [("attn_q", "attn_k"), ("attn_q", "attn_v"), ("ffn_gate", "ffn_up")] {
        let entry = |n: &str| ours.entry(&format!("blk.2.{n}.weight"));
        assert_eq!(entry(a), entry(b));
        assert!(entry(a).is_some());
    }
    assert_eq!(ours.datasets(), [text()]);
}

#[test]
fn experts_that_a_short_text_does_not_reach() {
    let place = Place::new();
    let folder = fixture("tiny/qwen3-moe");
    let args = ["convert", folder.to_str().unwrap(), "--type", "f32", "--output", "m.gguf"];
    place.run(&args).success();
    let args = ["imatrix", "m.gguf", &text(), "-c", "16", "--chunks", "1", "--no-ppl", "-o", "i.gguf"];
    let ran = place.run(&args);
    assert!(ran.stderr.contains("1 of 6 in blk.1.ffn_down_exps.weight"), "{}", ran.stderr);
    assert!(!ran.success().contains("perplexity"));
    let ours = Importance::open(&[place.path("i.gguf")]).unwrap();
    let theirs = Importance::open(&[fixture("importance/qwen3-moe.gguf")]).unwrap();
    assert_eq!(ours.names().collect::<Vec<_>>(), theirs.names().collect::<Vec<_>>());
    agree(&ours, &theirs);
}

#[test]
fn two_halves_make_the_whole() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let run = |more: &[&str]| {
        let text = text();
        let mut args = vec!["imatrix", &model, &text, "-c", "64", "--no-ppl", "--process-output"];
        args.extend(more);
        place.run(&args).success()
    };
    run(&["--chunks", "4", "-o", "whole.gguf"]);
    run(&["--chunks", "2", "-o", "a.gguf"]);
    run(&["--chunks", "2", "--from-chunk", "2", "-o", "b.gguf"]);
    run(&["--chunks", "2", "--from-chunk", "2", "--in-file", "a.gguf", "-o", "added.gguf"]);
    let said = place.run(&["imatrix", "--merge", "a.gguf", "b.gguf", "-o", "merged.gguf"]).success();
    assert_eq!(said, "Wrote merged.gguf: 42 tensors, 4 chunks of 64 tokens\n");
    let open = |name: &str| Importance::open(&[place.path(name)]).unwrap();
    let whole = open("whole.gguf");
    assert!(whole.entry("token_embd.weight").is_some());
    for parts in [open("added.gguf"), open("merged.gguf")] {
        assert_eq!(parts.chunk_count(), 4);
        for name in whole.names() {
            let (a, b) = (whole.entry(name).unwrap(), parts.entry(name).unwrap());
            assert_eq!(a.counts, b.counts);
            assert!(a.squares.iter().zip(&b.squares).all(|(x, y)| (x - y).abs() <= 1e-5 * x.abs()), "{name}");
        }
    }
}

#[test]
fn several_texts_are_one() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let whole = std::fs::read_to_string(text()).unwrap();
    std::fs::write(place.path("a.txt"), &whole[..800]).unwrap();
    std::fs::write(place.path("b.txt"), &whole[800..1600]).unwrap();
    let said = place.run(&["imatrix", &model, "a.txt", "b.txt", "-c", "100", "--no-ppl"]).success();
    let alone = place.run(&["imatrix", &model, "a.txt", "-c", "100", "--no-ppl", "--force"]).success();
    let chunks = |said: &str| said.split(' ').nth(4).unwrap().parse::<usize>().unwrap();
    assert!(chunks(&said) >= 2 * chunks(&alone), "{said}{alone}");
}

#[test]
fn mistakes_leave_every_file_as_it_was() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    std::fs::write(place.path("short.txt"), "A few words.").unwrap();
    std::fs::write(place.path("bytes.txt"), b"\xff\xfe\x00").unwrap();
    std::fs::write(place.path("there.gguf"), "mine").unwrap();
    let golden = fixture("importance/tiny-moe.gguf");
    std::fs::copy(&golden, place.path("a.gguf")).unwrap();
    let text = text();
    let before = place.files();
    for (args, parts) in [
        (&[&model[..], "short.txt"][..], &["0 chunks of 512", "--context"][..]),
        (&[&model, "absent.txt"], &["absent.txt"]),
        (&[&model, "bytes.txt"], &["bytes.txt", "UTF-8"]),
        (&["absent.gguf", &text], &["absent.gguf"]),
        (&[&model, &text, "-o", "there.gguf"], &["there.gguf exists already", "--force"]),
        (&[&model, &text, "-o", &model, "--force"], &["is an input"]),
        (&[&model, "short.txt", "-o", "short.txt", "--force"], &["short.txt", "is an input"]),
        (&[&model, &text, "-c", "64", "--chunks", "1", "--from-chunk", "1000000"], &["skipped"]),
        (&[&model, &text, "--in-file", "there.gguf"], &["there.gguf"]),
        (&["--merge", "a.gguf", "-o", "a.gguf", "--force"], &["a.gguf", "is an input"]),
        (&["--merge", "a.gguf", &model], &["general.type", "model"]),
        (&["--merge", "a.gguf", "--in-file", "a.gguf"], &["--merge"]),
        (&[&model, &text, "-o", "no/such/folder.gguf", "-c", "64", "--chunks", "1"], &["folder.gguf"]),
        (&[&model], &["<TEXTS>"]),
        (&[], &["MODEL"]),
        (&[&model, &text, "-c", "0"], &["--context"]),
    ] {
        place.run(&[&["imatrix"], args].concat()).failure(parts);
        assert_eq!(place.files(), before, "{args:?}");
    }
    assert_eq!(std::fs::read(place.path("there.gguf")).unwrap(), b"mine");
    assert_eq!(std::fs::read(place.path("a.gguf")).unwrap(), std::fs::read(golden).unwrap());
}

#[test]
fn a_checkpoint_folder_can_be_measured() {
    let place = Place::new();
    let folder = bundled("tiny-dense");
    let said =
        place.run(&["imatrix", folder.to_str().unwrap(), &text(), "-c", "64", "--chunks", "1"]).success();
    assert!(said.contains("41 tensors, 1 chunks of 64 tokens"), "{said}");
}
