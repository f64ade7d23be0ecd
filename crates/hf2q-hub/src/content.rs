//! What a file of a repository must be, and the check that it is.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::repository::is_hex;

/// The name of a part is that of its content and this.
pub(crate) const PART: &str = ".incomplete";

/// How a content is named and checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Large files: SHA-256 of the bytes.
    Sha256,
    /// Small files: git's SHA-1, over a header with the size and the bytes.
    Git,
    /// A hub that announces neither: its tag for the content, which proves nothing.
    Tag,
}

impl Kind {
    /// As messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Git => "git SHA-1",
            Self::Tag => "tag",
        }
    }
}

/// The bytes a name stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Content {
    /// The hash or tag: also the name of the file in the cache.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}

impl Content {
    /// `None` unless `id` is 64 hexadecimal digits.
    pub(crate) fn sha256(id: &str, bytes: u64) -> Option<Self> {
        (id.len() == 64 && is_hex(id)).then(|| Self { id: id.to_owned(), kind: Kind::Sha256, bytes })
    }

    /// `None` unless `id` is 40 hexadecimal digits.
    pub(crate) fn git(id: &str, bytes: u64) -> Option<Self> {
        (id.len() == 40 && is_hex(id)).then(|| Self { id: id.to_owned(), kind: Kind::Git, bytes })
    }

    /// From an `ETag`, whose form tells what it is. `None` if it is not fit to be a file's name.
    pub(crate) fn tagged(etag: &str, bytes: u64) -> Option<Self> {
        let id = plain_tag(etag);
        let fit = !id.is_empty()
            && id.len() <= 128
            && !id.starts_with('.')
            // The part of another content is called so, on some disks in any case of letters.
            && !id.to_ascii_lowercase().ends_with(PART)
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let tag = || fit.then(|| Self { id: id.to_owned(), kind: Kind::Tag, bytes });
        Self::sha256(id, bytes).or_else(|| Self::git(id, bytes)).or_else(tag)
    }

    /// Whether a tag that the hub sends with the bytes contradicts this content.
    pub(crate) fn contradicts(&self, etag: &str) -> bool {
        let tag = plain_tag(etag);
        // A tag of another form (a mirror's, say) does not contradict.
        Content::tagged(tag, self.bytes).is_some_and(|other| other.kind == self.kind && other.id != self.id)
    }
}

/// `W/"x"` and `"x"` to `x`.
fn plain_tag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// A hash in the making.
pub(crate) struct Digest(Option<Context>);

impl Digest {
    pub(crate) fn new(content: &Content) -> Self {
        Self(match content.kind {
            Kind::Sha256 => Some(Context::new(&SHA256)),
            Kind::Git => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {}\0", content.bytes).as_bytes());
                Some(context)
            }
            Kind::Tag => None,
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(context) = &mut self.0 {
            context.update(bytes);
        }
    }

    /// Hexadecimal digits of what was fed; `None` for contents without a hash.
    pub(crate) fn finish(&self) -> Option<String> {
        let digest = self.0.clone()?.finish();
        Some(digest.as_ref().iter().map(|b| format!("{b:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(content: &Content, bytes: &[u8]) -> Option<String> {
        let mut digest = Digest::new(content);
        bytes.chunks(3).for_each(|c| digest.update(c));
        digest.finish()
    }

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let git = Content::git("95d09f2b10159347eece71399a7e2e907ea3df4f", 11).unwrap();
        assert_eq!(hash(&git, b"hello world"), Some(git.id.clone()));
        let sha = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";
        let sha = Content::sha256(sha, 11).unwrap();
        assert_eq!(hash(&sha, b"hello world"), Some(sha.id.clone()));
        assert_eq!(hash(&Content::tagged("\"x-1\"", 11).unwrap(), b"hello world"), None);
    }

    #[test]
    fn tags_become_names_of_files_or_nothing() {
        assert_eq!(Content::tagged("W/\"a-b_c.1\"", 1).unwrap().id, "a-b_c.1");
        assert_eq!(Content::tagged("incomplete", 1).unwrap().id, "incomplete");
        assert_eq!(Content::tagged(&"a".repeat(40), 1).unwrap().kind, Kind::Git);
        assert_eq!(Content::tagged(&format!("\"{}\"", "a".repeat(64)), 1).unwrap().kind, Kind::Sha256);
        for bad in [
            "",
            "\"\"",
            "../x",
            ".x",
            "a/b",
            "a b",
            "a\u{0}",
            "x.incomplete",
            "\"x.Incomplete\"",
            &"x".repeat(129),
        ] {
            assert_eq!(Content::tagged(bad, 1), None, "{bad:?}");
        }
        assert_eq!(Content::sha256(&"A".repeat(64), 1), None);
        assert_eq!(Content::git("../../../../../../../../../../../../x/yz", 1), None);
    }

    #[test]
    fn only_a_tag_of_the_same_form_contradicts() {
        let git = Content::git(&"a".repeat(40), 1).unwrap();
        assert!(git.contradicts(&format!("\"{}\"", "b".repeat(40))));
        assert!(!git.contradicts(&format!("W/\"{}\"", "a".repeat(40))));
        assert!(!git.contradicts("\"some-mirror\""));
    }
}
