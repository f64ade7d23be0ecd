//! Split models: `PREFIX-00001-of-00003.gguf` and the `split.*` keys.

use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::metadata::Metadata;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Most files of a set: `split.no` and `split.count` have 16 bits.
pub(crate) const MAX_FILES: usize = u16::MAX as usize;

/// The `split.*` keys of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitKeys {
    /// Which file, from 0.
    pub(crate) number: u64,
    /// Files of the set.
    pub(crate) count: u64,
    /// Tensors of all files together.
    pub(crate) tensors: u64,
}

impl SplitKeys {
    /// The keys of a file; `None` if it is a model by itself.
    pub(crate) fn read(metadata: &Metadata) -> Result<Option<Self>, GgufError> {
        let count = metadata.opt_u64(COUNT)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        Ok(Some(Self { number: metadata.u64(NUMBER)?, count, tensors: metadata.u64(TENSORS)? }))
    }

    /// Sets the keys, with the types other programs expect.
    pub(crate) fn write(number: u16, count: u16, tensors: i32, metadata: &mut Metadata) {
        metadata.insert(NUMBER, number);
        metadata.insert(COUNT, count);
        metadata.insert(TENSORS, tensors);
    }

    /// Checks that this is file `number` of the set that `first` describes.
    pub(crate) fn check(self, number: u64, first: Self) -> Result<(), GgufError> {
        let pairs = [
            (NUMBER, self.number, number),
            (COUNT, self.count, first.count),
            (TENSORS, self.tensors, first.tensors),
        ];
        match pairs.into_iter().find(|(_, found, expected)| found != expected) {
            Some((key, found, expected)) => Err(GgufError::SplitKey { key, found, expected }),
            None => Ok(()),
        }
    }

    /// Checks the keys of one file against its name alone.
    pub(crate) fn check_name(self, name: &SplitName) -> Result<(), GgufError> {
        let count = u64::from(name.count);
        self.check(u64::from(name.number - 1), Self { count, ..self })
    }
}

/// Removes every `split.*` key.
pub(crate) fn remove_keys(metadata: &mut Metadata) {
    for key in [NUMBER, COUNT, TENSORS] {
        metadata.remove(key);
    }
}

/// A path of the form `PREFIX-00001-of-00003.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitName {
    /// The path without number, count and extension.
    prefix: PathBuf,
    /// Which file, from 1.
    pub(crate) number: u32,
    /// Files of the set.
    pub(crate) count: u32,
}

impl SplitName {
    /// Takes a path apart; `None` if it has another form or the numbers make no sense.
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (digits(number)?, digits(count)?);
        let valid = (1..=count).contains(&number);
        valid.then(|| Self { prefix: path.with_file_name(prefix), number, count })
    }

    /// Paths of all files of the set.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        (1..=self.count).map(|number| path(&self.prefix, number, self.count)).collect()
    }

    /// Paths of a new set of `count` files, named after `output`.
    pub(crate) fn new_paths(output: &Path, count: u32) -> Vec<PathBuf> {
        let prefix = match Self::parse(output) {
            Some(name) => name.prefix,
            None if output.extension().is_some_and(|e| e == "gguf") => output.with_extension(""),
            None => output.to_owned(),
        };
        Self { prefix, number: 1, count }.paths()
    }
}

fn path(prefix: &Path, number: u32, count: u32) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(format!("-{number:05}-of-{count:05}.gguf"));
    PathBuf::from(name)
}

/// Five digits.
fn digits(text: &str) -> Option<u32> {
    let five = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    five.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        let name = SplitName::parse(Path::new("dir/m-1-00002-of-00003.gguf")).unwrap();
        assert_eq!((name.number, name.count), (2, 3));
        let all =
            ["dir/m-1-00001-of-00003.gguf", "dir/m-1-00002-of-00003.gguf", "dir/m-1-00003-of-00003.gguf"];
        assert_eq!(name.paths(), all.map(PathBuf::from));
        for new in ["dir/m-1.gguf", "dir/m-1", "dir/m-1-00007-of-00009.gguf"] {
            assert_eq!(SplitName::new_paths(Path::new(new), 3), name.paths());
        }
        assert_eq!(SplitName::new_paths(Path::new("q4.5"), 1), [PathBuf::from("q4.5-00001-of-00001.gguf")]);
    }

    #[test]
    fn other_names_are_not_taken_apart() {
        for other in [
            "m.gguf",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-1-of-2.gguf",
            "m-+0001-of-00002.gguf",
        ] {
            assert_eq!(SplitName::parse(Path::new(other)), None, "{other}");
        }
    }
}
