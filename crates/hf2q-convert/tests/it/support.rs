//! Folders to convert.

use std::path::{Path, PathBuf};

use hf2q_convert::{ConvertError, Options, Progress, Recipe, Summary};
use hf2q_gguf::Gguf;

/// Goes on, and remembers what it was told.
#[derive(Default)]
pub(crate) struct Silent {
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) stop_after: Option<u64>,
}

impl Progress for Silent {
    fn start(&mut self, total_bytes: u64) {
        self.total = total_bytes;
    }

    fn advance(&mut self, _tensor: &str, done_bytes: u64) -> bool {
        self.done = done_bytes;
        self.stop_after.is_none_or(|limit| done_bytes < limit)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every checkpoint of the repository.
pub(crate) fn checkpoints() -> Vec<PathBuf> {
    let list = |dir: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(root().join(dir)).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.join("config.json").is_file()).collect()
    };
    let all = [list("fixtures/tiny"), list("fixtures/assistant"), list("models/demo")].concat();
    assert!(all.len() > 8, "{all:?}");
    all
}

pub(crate) fn try_convert(folder: &Path, output: &Path, ty: &str) -> Result<Summary, ConvertError> {
    let options = Options::new(Recipe::from_name(ty)?);
    hf2q_convert::convert(folder, output, options, &mut Silent::default())
}

pub(crate) fn convert(folder: &Path, ty: &str) -> (tempfile::TempDir, Gguf, Summary) {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.gguf");
    let summary = try_convert(folder, &output, ty).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let gguf = Gguf::open(&output).unwrap();
    (dir, gguf, summary)
}
