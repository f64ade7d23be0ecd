//! `hf2q convert`, also under its other name.

use std::process::{Command, Stdio};
use std::time::Duration;

use hf2q_gguf::{Gguf, TensorType};

use crate::support::{Place, bundled};

#[test]
fn a_dry_run_prints_every_tensor_and_writes_nothing() {
    let place = Place::new();
    let dense = bundled("tiny-dense");
    let table = place.run(&["convert", dense.to_str().unwrap(), "-t", "q4_k_m", "--dry-run"]).success();
    assert!(table.contains("token_embd.weight"), "{table}");
    assert!(table.contains("bits per weight"), "{table}");
    assert!(place.files().is_empty(), "{:?}", place.files());
    // The table says what is written.
    let file = place.converted("tiny-dense", "q4_k_m");
    for tensor in Gguf::open(&place.path(&file)).unwrap().tensors() {
        let line = table.lines().find(|l| l.starts_with(&format!("{} ", tensor.name))).unwrap();
        assert!(line.contains(&format!("-> {} ", tensor.ty)), "{line}");
    }
}

#[test]
fn a_file_is_quantized_beside_its_checkpoint() {
    let place = Place::new();
    let file = place.converted("tiny-dense", "f16");
    let answer = place.run(&["quantize", &file, "--type", "Q4_K_M"]).success();
    assert!(answer.contains("Wrote tiny-dense-q4_k_m.gguf"), "{answer}");
    let text = place.run(&["run", "tiny-dense-q4_k_m.gguf", "--raw", "Once", "-n", "4"]).success();
    assert!(text.len() > 4, "{text}");
}

#[test]
fn types_can_be_overridden() {
    let place = Place::new();
    let dense = bundled("tiny-dense");
    let common = ["convert", dense.to_str().unwrap(), "-t", "q4_0", "-o", "out.gguf", "-f"];
    let types = |extra: &[&str]| {
        place.run(&[&common, extra].concat()).success();
        let file = Gguf::open(&place.path("out.gguf")).unwrap();
        let ty = |name: &str| file.tensor(name).unwrap().ty;
        (ty("token_embd.weight"), ty("blk.0.attn_q.weight"), ty("blk.1.ffn_down.weight"))
    };
    let (q4, q8) = (TensorType::Q4_0, TensorType::Q8_0);
    assert_eq!(types(&[]).1, q4);
    assert_eq!(types(&["--pure"]), (q4, q4, q4));
    assert_eq!(types(&["--pure", "--embedding-type", "bf16"]), (TensorType::Bf16, q4, q4));
    assert_eq!(
        types(&["--output-type", "q8_0", "--tensor-type", r"blk\.1\.=q5_1"]),
        (q8, q4, TensorType::Q5_1)
    );
    place.run(&[&common[..], &["--tensor-type", "attn_q"]].concat()).failure(&["attn_q", "PATTERN=TYPE"]);
    place.run(&[&common[..], &["--output-type", "q9"]].concat()).failure(&["--output-type", "q9", "q6_k"]);
}

/// Rows of 64 are no multiple of 256.
#[test]
fn fallbacks_are_told_or_refused() {
    let place = Place::new();
    let narrow = bundled("../../fixtures/tiny/gemma4-moe");
    let common = ["convert", narrow.to_str().unwrap(), "-t", "q6_k", "-o", "out.gguf", "--pure"];
    place.run(&[&common[..], &["--no-fallback"]].concat()).failure(&["q6_k", "no multiple of 256"]);
    assert!(place.files().is_empty());
    let ran = place.run(&common);
    assert!(ran.stderr.contains("instead of q6_k"), "{}", ran.stderr);
    ran.success();
}

#[test]
fn a_report_is_written_beside_the_file() {
    let place = Place::new();
    let dense = bundled("tiny-dense");
    let common = ["convert", dense.to_str().unwrap(), "-t", "q4_0", "-o", "out.gguf"];
    place.run(&[&common[..], &["--report", "no/such/folder/page.html"]].concat()).failure(&["no folder"]);
    for page in ["out.gguf", "./out.gguf", "other.gguf"] {
        place.run(&[&common[..], &["--report", page]].concat()).failure(&["a page is no model"]);
    }
    assert!(place.files().is_empty());
    place.run(&[&common[..], &["--report", "page.html"]].concat()).success();
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("blk.0.attn_q.weight"));
    place.run(&[&common[..], &["--report", "page.html"]].concat()).failure(&["exists already"]);
    place
        .run(&["quantize", "out.gguf", "-t", "q8_0", "-o", "b.gguf", "--report", "out.gguf", "-f"])
        .failure(&["a page is no model"]);
    assert_eq!(place.files(), ["out.gguf", "page.html"]);
}

/// However early or late the program is killed: what stands under the output's name is whole.
#[cfg(unix)]
#[test]
fn a_killed_conversion_leaves_no_file_that_looks_complete() {
    let place = Place::new();
    let source = place.converted("tiny-moe", "f32");
    let run = |wait: Option<Duration>| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hf2q"))
            .args(["quantize", &source, "-t", "q5_k_m", "-o", "out.gguf", "-f"])
            .current_dir(place.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        match wait {
            Some(wait) => {
                std::thread::sleep(wait);
                child.kill().unwrap();
                child.wait().unwrap();
            }
            None => assert!(child.wait().unwrap().success()),
        }
    };
    let started = std::time::Instant::now();
    run(None);
    let whole = std::fs::read(place.path("out.gguf")).unwrap();
    let time = started.elapsed();
    for part in 0..20 {
        std::fs::remove_file(place.path("out.gguf")).ok();
        run(Some(time * part / 20));
        if let Ok(left) = std::fs::read(place.path("out.gguf")) {
            assert!(left == whole, "killed after {part} twentieths");
        }
    }
    // A later run is not disturbed by what earlier ones left.
    run(None);
    assert!(std::fs::read(place.path("out.gguf")).unwrap() == whole);
}
