//! The JSON and text files of a checkpoint folder.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::ConvertError;

/// A checkpoint folder. Files are read when asked for.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
}

impl Folder {
    /// Names a folder; nothing is read yet.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What the model is called: the folder's name, or the repository's if it is a snapshot in HuggingFace's cache,
    /// `models--ORG--NAME/snapshots/COMMIT`.
    pub fn name(&self) -> Option<String> {
        let dir = self.dir.canonicalize().ok()?;
        repository_name(&dir).or_else(|| Some(dir.file_name()?.to_str()?.to_owned()))
    }

    /// Every file that no conversion has made: what must not be overwritten.
    pub fn inputs(&self) -> Result<Vec<PathBuf>, ConvertError> {
        let io = |source| ConvertError::Io { path: self.dir.clone(), source };
        let entries = std::fs::read_dir(&self.dir).map_err(io)?;
        let paths: Vec<PathBuf> =
            entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(io)?;
        Ok(paths.into_iter().filter(|p| p.extension().is_none_or(|e| e != "gguf")).collect())
    }

    /// The text of a file; `None` if it does not exist.
    pub fn text(&self, name: &str) -> Result<Option<String>, ConvertError> {
        let path = self.path(name);
        // Opening a pipe would wait for its writer.
        if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
            return Err(ConvertError::Io { path, source });
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ConvertError::Io { path, source }),
        }
    }

    /// A JSON file; `None` if it does not exist.
    pub fn json(&self, name: &str) -> Result<Option<Value>, ConvertError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let value = serde_json::from_str(&text);
        value.map(Some).map_err(|source| ConvertError::Json { path: self.path(name), source })
    }

    /// A JSON file that must exist.
    pub fn required_json(&self, name: &str) -> Result<Value, ConvertError> {
        let missing =
            || ConvertError::Io { path: self.path(name), source: std::io::ErrorKind::NotFound.into() };
        self.json(name)?.ok_or_else(missing)
    }

    /// The error for a key of one of its files.
    pub fn bad_key(
        &self,
        name: &str,
        key: impl Into<String>,
        found: Option<&Value>,
        expected: &str,
    ) -> ConvertError {
        let found = found.map_or_else(|| "missing".to_owned(), shorten);
        ConvertError::Key { path: self.path(name), key: key.into(), found, expected: expected.to_owned() }
    }
}

fn repository_name(dir: &Path) -> Option<String> {
    let snapshots = dir.parent().filter(|p| p.file_name().is_some_and(|n| n == "snapshots"))?;
    let repository = snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?;
    let name = repository.split_once("--").map_or(repository, |(_, name)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

fn shorten(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("…".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_called_as_their_repository() {
        let name = |path: &str| repository_name(Path::new(path));
        assert_eq!(name("/c/models--google--gemma-3/snapshots/0123"), Some("gemma-3".into()));
        assert_eq!(name("/c/models--gpt2/snapshots/0123"), Some("gpt2".into()));
        for other in ["/c/gemma", "/", "", "/models--a--b/blobs/x", "/snapshots/x", "/models--/snapshots/x"] {
            assert_eq!(name(other), None, "{other:?}");
        }
    }
}
