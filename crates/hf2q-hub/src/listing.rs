//! What the hub says a repository holds.

use std::path::{Component, Path};

use serde::Deserialize;

use crate::content::Content;
use crate::error::HubError;
use crate::repository::{Repository, is_commit};

/// Most bytes of a listing: that of a repository with a hundred thousand files has half as many.
pub(crate) const LIMIT: u64 = 64 << 20;

/// A commit and its files.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<Entry>,
}

/// A file of a repository.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Relative, with slashes.
    pub(crate) name: String,
    /// `None` if the hub does not say: it is asked for the file.
    pub(crate) content: Option<Content>,
}

impl Listing {
    /// Reads the answer of `/api/models/ORG/NAME/revision/REVISION?blobs=true`. Every name leads into the folder.
    pub(crate) fn parse(bytes: &[u8], url: &str, repository: &Repository) -> Result<Self, HubError> {
        let bad = |why: String| HubError::Malformed { of: url.to_owned(), why };
        let raw: RawListing =
            serde_json::from_slice(bytes).map_err(|e| bad(format!("not a listing of a repository: {e}")))?;
        let commit = raw.sha.unwrap_or_default();
        if !is_commit(&commit) {
            return Err(bad(format!(
                "sha is {:?}, expected 40 hexadecimal digits",
                crate::text::shown(&commit)
            )));
        }
        let mut files = Vec::new();
        for file in raw.siblings {
            check_inside(&file.rfilename).map_err(|why| HubError::HostileName {
                repository: repository.id().to_owned(),
                of: "its listing".to_owned(),
                name: file.rfilename.clone(),
                why,
            })?;
            files.push(Entry { content: file.content(), name: file.rfilename });
        }
        Ok(Self { commit, files })
    }
}

#[derive(Deserialize)]
struct RawListing {
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFile {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<RawLfs>,
}

#[derive(Deserialize)]
struct RawLfs {
    sha256: Option<String>,
    size: Option<u64>,
}

impl RawFile {
    fn content(&self) -> Option<Content> {
        match &self.lfs {
            Some(lfs) => Content::sha256(lfs.sha256.as_deref()?, lfs.size.or(self.size)?),
            None => Content::git(self.blob_id.as_deref()?, self.size?),
        }
    }
}

/// Whether a name stays inside the folder, on any system.
fn check_inside(name: &str) -> Result<(), &'static str> {
    if name.chars().any(char::is_control) {
        return Err("contains control characters");
    }
    if name.starts_with(['/', '\\']) || Path::new(name).is_absolute() || name.as_bytes().get(1) == Some(&b':')
    {
        return Err("is an absolute path");
    }
    if name.split(['/', '\\']).any(|part| part == "..") {
        return Err("leads out of the folder");
    }
    Ok(())
}

/// Whether a name is fit for a file beside the others: one component of letters, digits and `-_.+` and spaces.
pub(crate) fn check_plain(name: &str) -> Result<(), &'static str> {
    check_inside(name)?;
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(p)), None) if p == name) {
        return Err("is not a plain file name");
    }
    if name.len() > 200 {
        return Err("is longer than 200 characters");
    }
    if name.starts_with(['.', '-', ' ']) || name.ends_with(['.', ' ']) {
        return Err("begins or ends with a character that is not fit for it");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+ ".contains(&b)) {
        return Err("has other characters than letters, digits, '-', '_', '.', '+' and spaces");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn parse(json: &str) -> Result<Listing, HubError> {
        Listing::parse(json.as_bytes(), "http://hub/api", &"a/b".parse().unwrap())
    }

    #[test]
    fn contents_are_named_by_the_hashes_the_hub_gives() {
        let sha = "b".repeat(64);
        let json = format!(
            r#"{{"sha":"{COMMIT}","gated":"manual","siblings":[
              {{"rfilename":"config.json","size":3,"blobId":"{COMMIT}"}},
              {{"rfilename":"m.safetensors","size":9,"blobId":"{COMMIT}","lfs":{{"sha256":"{sha}","size":9,"pointerSize":134}}}},
              {{"rfilename":"x/y z.png"}},
              {{"rfilename":"odd","size":1,"blobId":"nonsense"}}]}}"#
        );
        let listing = parse(&json).unwrap();
        assert_eq!(listing.commit, COMMIT);
        let contents: Vec<_> = listing.files.iter().map(|f| f.content.clone()).collect();
        assert_eq!(contents, [Content::git(COMMIT, 3), Content::sha256(&sha, 9), None, None]);
    }

    #[test]
    fn what_is_no_listing_is_refused() {
        let many = format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"a""#);
        for json in
            ["", "<html>", "{}", "[]", r#"{"sha":"main","siblings":[]}"#, r#"{"sha":"../../x"}"#, &many]
        {
            assert!(matches!(parse(json), Err(HubError::Malformed { .. })), "{json}");
        }
    }

    #[test]
    fn hostile_names_are_refused_and_odd_ones_elsewhere_are_not() {
        for name in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "..\\\\x",
            "C:\\\\x",
            "\\\\\\\\host\\\\x",
            "a\\u0000",
            "a\\u001b[2J",
            "..",
        ] {
            let json = format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"{name}"}}]}}"#);
            assert!(matches!(parse(&json), Err(HubError::HostileName { .. })), "{name}");
        }
        for name in ["images/a b.png", "a..b", "sub\\\\file.bin", "café.md", ".gitattributes"] {
            let json = format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"{name}"}}]}}"#);
            assert!(parse(&json).is_ok(), "{name}");
        }
    }

    #[test]
    fn plain_names_are_one_component_of_plain_characters() {
        for good in ["model-00001-of-00002.safetensors", "tokenizer.model", "a+b c_d.json"] {
            assert_eq!(check_plain(good), Ok(()), "{good:?}");
        }
        let long = "x".repeat(201);
        for bad in
            ["", ".", "..", ".x", "a/b", "a\\b", "a/", "./a", "a:b", "é", "a\u{202e}b", "a ", "-x", &long]
        {
            assert!(check_plain(bad).is_err(), "{bad:?}");
        }
    }
}
