//! Plans of all toys as text, compared with a stored file.

use std::path::Path;

use hf2q_model::{RecordOptions, toy};
use hf2q_plan::{Passes, Plan};

#[test]
fn plans_without_fusion() {
    let names =
        ["gemma4-dense", "gemma4-moe", "gemma4-per-layer", "gemma3", "llama", "llama3", "qwen3", "qwen3moe"];
    check(&names, "", Passes::NONE);
}

#[test]
fn plans_with_fusion() {
    check(&["gemma4-moe", "gemma4-per-layer", "qwen3"], "-fused", Passes::ALL);
}

fn check(names: &[&str], suffix: &str, passes: Passes) {
    let differ: Vec<String> = toy::all(0)
        .into_iter()
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(name, model)| {
            let recording = model.record(&RecordOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
            difference(&format!("{name}{suffix}"), &Plan::compile(recording, passes).to_string())
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Where the stored text differs; what was found is left in the build folder, to be copied if it is right.
fn difference(name: &str, found: &str) -> Option<String> {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(format!("{name}.txt"));
    let expected = std::fs::read_to_string(&stored).unwrap_or_default();
    if expected == found {
        return None;
    }
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("model-{name}.txt"));
    std::fs::write(&new, found).unwrap();
    let line = expected.lines().zip(found.lines()).take_while(|(a, b)| a == b).count() + 1;
    Some(format!("{} differs from {} at line {line}", stored.display(), new.display()))
}
