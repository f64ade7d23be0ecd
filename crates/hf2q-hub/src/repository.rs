//! Names of repositories.

use std::fmt;
use std::str::FromStr;

use crate::error::HubError;

const MAIN: &str = "main";

/// Longest organization, name or revision.
const LONGEST: usize = 96;

/// Ends of names that mean a file, not a repository.
const FILES: [&str; 6] = [".gguf", ".safetensors", ".json", ".bin", ".txt", ".jinja"];

/// A model repository at a revision: `ORG/NAME`, or `ORG/NAME@REVISION` with a branch, tag or commit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Repository {
    id: String,
    revision: String,
}

impl Repository {
    /// Whether a text that is no local path may be meant as a repository.
    pub fn looks_like(text: &str) -> bool {
        text.parse::<Self>().is_ok_and(|r| !FILES.iter().any(|end| r.id.to_ascii_lowercase().ends_with(end)))
    }

    /// `ORG/NAME`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `NAME`.
    pub fn name(&self) -> &str {
        self.id.split_once('/').map_or(&*self.id, |(_, name)| name)
    }

    /// Branch, tag or commit; `main` if none was given.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The revision if it is a whole commit hash, which never changes.
    pub(crate) fn commit(&self) -> Option<&str> {
        is_commit(&self.revision).then_some(&*self.revision)
    }
}

impl FromStr for Repository {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let bad = |why| HubError::Name { given: text.to_owned(), why };
        let bare = text.strip_prefix("hf://").or_else(|| text.strip_prefix("https://huggingface.co/"));
        let bare = bare.unwrap_or(text);
        let (id, revision) = bare.split_once('@').unwrap_or((bare, MAIN));
        let (organization, name) = id.split_once('/').ok_or_else(|| bad("it has no slash"))?;
        for part in [organization, name] {
            check_part(part).map_err(bad)?;
        }
        if name.ends_with(".git") {
            return Err(bad("the name ends in .git"));
        }
        check_revision(revision).map_err(bad)?;
        Ok(Self { id: id.to_owned(), revision: revision.to_owned() })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

fn check_part(part: &str) -> Result<(), &'static str> {
    if part.is_empty() || part.len() > LONGEST {
        return Err("organization and name have 1 to 96 characters");
    }
    if !part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err("organization and name have letters, digits, '-', '_' and '.' only");
    }
    if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) {
        return Err("organization and name neither begin nor end with '-' or '.'");
    }
    if part.contains("--") || part.contains("..") {
        return Err("it contains '--' or '..'");
    }
    Ok(())
}

/// A revision names a file below `refs`, too.
fn check_revision(revision: &str) -> Result<(), &'static str> {
    if revision.is_empty() || revision.len() > LONGEST {
        return Err("a revision has 1 to 96 characters");
    }
    if !revision.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+/".contains(&b)) {
        return Err("a revision has letters, digits, '-', '_', '.', '+' and '/' only");
    }
    if revision.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with('.')) {
        return Err("no part of a revision is empty or begins or ends with '.'");
    }
    Ok(())
}

/// 40 lower-case hexadecimal digits.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_hex(text)
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_told_from_paths() {
        for good in ["google/gemma-3-270m-it", "a/b", "Org_1/N.a-me@v1.0", "a/b@refs/pr/3", "hf://a/b"] {
            assert!(Repository::looks_like(good), "{good:?}");
        }
        for bad in [
            "gpt2",
            "./a",
            "../a",
            "/a/b",
            "a/b/c",
            "a//b",
            "a/",
            "/a",
            "~/a",
            "a/b.gguf",
            "a/B.GGUF",
            "a/.b",
            "a/b..c",
            "a/b--c",
            "a b/c",
            "a\\b/c",
            "a/b@",
            "a/b@..",
            "a/b@x/../y",
            "a/b@/x",
            "a/b@.x",
            "a/b@x y",
            "a/b.git",
            "",
            "a/b\n",
        ] {
            assert!(!Repository::looks_like(bad), "{bad:?}");
        }
    }

    #[test]
    fn parts_are_found() {
        let r: Repository = "https://huggingface.co/google/gemma@v2".parse().unwrap();
        assert_eq!((r.id(), r.name(), r.revision()), ("google/gemma", "gemma", "v2"));
        assert_eq!(r.to_string(), "google/gemma@v2");
        assert_eq!(r.commit(), None);
        let r: Repository = "a/b".parse().unwrap();
        assert_eq!((r.revision(), r.to_string().as_str()), ("main", "a/b"));
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let r: Repository = format!("a/b@{hash}").parse().unwrap();
        assert_eq!(r.commit(), Some(hash));
    }
}
