//! Running the program in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// What a run left: status and texts.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ok: bool,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn new(output: &Output) -> Self {
        let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
        // 101 is the status of a panic; no status at all is a signal.
        assert!(output.status.code().is_some_and(|c| c != 101), "crashed: {output:?}");
        let code = output.status.code();
        Self { ok: output.status.success(), code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Standard output of a run that must succeed.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(self.ok, "failed: {}", self.stderr);
        self.stdout
    }

    /// Standard error of a run that must fail; each part must be in it.
    #[track_caller]
    pub(crate) fn failure(self, parts: &[&str]) -> String {
        assert!(!self.ok, "succeeded: {}", self.stdout);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {:?}", self.stderr);
        }
        self.stderr
    }
}

/// A scratch folder that is the program's cache and current folder.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with_input(args, "")
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hf2q"))
            .args(args)
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that refuses its arguments does not read its input.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        Ran::new(&child.wait_with_output().unwrap())
    }

    /// Converts a bundled checkpoint; returns the file's name.
    pub(crate) fn converted(&self, checkpoint: &str, ty: &str) -> String {
        let name = format!("{checkpoint}-{ty}.gguf");
        let folder = bundled(checkpoint);
        self.run(&["convert", folder.to_str().unwrap(), "--type", ty, "--output", &name]).success();
        name
    }

    /// A copy of the bundled dense checkpoint that a test may damage.
    pub(crate) fn checkpoint_copy(&self, checkpoint: &str) -> PathBuf {
        let to = self.path("checkpoint");
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(bundled(checkpoint)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        to
    }

    /// Names of the files in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo").join(name)
}
