//! Models converted from checkpoints against what the transformers library computed from them.

use std::path::{Path, PathBuf};

use hf2q_conformance::Subject;
use hf2q_conformance::goldens::{Findings, Golden, Runner};
use hf2q_convert::{Options, Progress, Recipe, convert};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, KvFormat};
use hf2q_reference::ReferenceBackend;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Silent;

impl Progress for Silent {
    fn start(&mut self, _: u64) {}

    fn advance(&mut self, _: &str, _: u64) -> bool {
        true
    }
}

/// The checkpoint in `folder` as a file of type `recipe`.
pub(crate) fn converted(folder: &Path, recipe: &str) -> Gguf {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let options = Options::new(Recipe::from_name(recipe).unwrap());
    convert(folder, &path, options, &mut Silent).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    Gguf::open(&path).unwrap()
}

/// Keys and values in f32, as the goldens were made.
pub(crate) fn subject(gguf: &Gguf) -> Subject {
    let model = Model::load(gguf).unwrap();
    Subject::of_model(&model, &RecordOptions::uniform(KvFormat::F32)).unwrap()
}

pub(crate) fn compare(backend: &dyn Backend, folder: &Path, chunks: usize) -> Findings {
    let golden = Golden::load(&folder.join("goldens.json")).unwrap();
    let gguf = converted(folder, "f32");
    let mut runner = Runner::open(backend, subject(&gguf), (1024, 128)).unwrap();
    runner.compare(&golden, None, chunks).unwrap()
}

pub(crate) fn tiny_checkpoints() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("fixtures/tiny")).unwrap();
    let mut folders: Vec<PathBuf> =
        entries.map(|e| e.unwrap().path()).filter(|p| p.join("goldens.json").exists()).collect();
    folders.sort();
    assert!(folders.len() >= 12, "{folders:?}");
    folders
}

pub(crate) fn check_tiny(backend: &dyn Backend) {
    let mut misses = vec![];
    for folder in tiny_checkpoints() {
        let found = compare(backend, &folder, 1);
        assert!(found.prompts.len() >= 4 && found.perplexity.is_some(), "{}: {found:?}", folder.display());
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        misses.extend(found.misses(1e-4, 5e-4).into_iter().map(|m| format!("{name}: {m}")));
        for p in &found.prompts {
            let off = p.hidden.iter().copied().fold(0.0, f64::max);
            if p.hidden.is_empty() || !off.is_finite() || off > 1e-4 {
                misses.push(format!("{name}: {}: hidden states are off by {:?}", p.name, p.hidden));
            }
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}

#[test]
fn the_reference_computes_what_transformers_does() {
    check_tiny(&ReferenceBackend);
}
