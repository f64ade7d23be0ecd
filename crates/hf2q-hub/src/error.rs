//! Why a repository is not to be had.

use std::path::PathBuf;

use crate::text::{address, bytes, shown, some};

/// Why a repository is not to be had. Each says what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Not the name of a repository.
    #[error("{}: not a repository: {why}; expected ORG/NAME or ORG/NAME@REVISION", shown(given))]
    Name {
        /// What was given.
        given: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The endpoint is not a URL, or certificates cannot be read. Its value is not told where it may hold a password.
    #[error("{setting}: {}", shown(why))]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong.
        why: String,
    },
    /// There is no such repository, or it is hidden.
    #[error("{endpoint} has no model repository {repository}{}", hidden(*signed_in))]
    NoRepository {
        /// `ORG/NAME`.
        repository: String,
        /// The hub.
        endpoint: String,
        /// Whether a token was sent.
        signed_in: bool,
    },
    /// The repository has no such branch, tag or commit.
    #[error("{repository} has no revision {revision}; branches and tags are listed at {url}")]
    NoRevision {
        /// `ORG/NAME`.
        repository: String,
        /// What was asked for.
        revision: String,
        /// A page that lists them.
        url: String,
    },
    /// A licence must be accepted first.
    #[error("{repository} is gated: {}", gate(url, *signed_in))]
    Gated {
        /// `ORG/NAME`.
        repository: String,
        /// Where it is accepted.
        url: String,
        /// Whether a token was sent.
        signed_in: bool,
    },
    /// The token is wrong, expired, or not allowed to read this.
    #[error(
        "{repository}: the hub refuses the token ({status}{}); make one with read access at {endpoint}/settings/tokens and set HF_TOKEN, or run `hf auth login`",
        said(message)
    )]
    Token {
        /// `ORG/NAME`.
        repository: String,
        /// The hub.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// The hub's words.
        message: String,
    },
    /// Any other refusal.
    #[error("{}: HTTP status {status}{}", address(url), said(message))]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// The hub's words.
        message: String,
    },
    /// The hub did not answer, or not to the end.
    #[error(
        "{}: {} (tried {attempts} times); the same command goes on where this one ended",
        address(url),
        shown(why)
    )]
    Unreachable {
        /// What was asked for.
        url: String,
        /// The last failure.
        why: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// There is no way to the hub.
    #[error(
        "cannot reach {}: {}; is there a network? HTTPS_PROXY names a proxy, HF_ENDPOINT another hub; --offline takes what the cache has",
        host(url),
        shown(why)
    )]
    Away {
        /// What was asked for.
        url: String,
        /// The last failure.
        why: String,
    },
    /// The connection cannot be trusted.
    #[error(
        "{}: {why}; where a company looks into TLS, name its certificates in SSL_CERT_FILE",
        address(url)
    )]
    Tls {
        /// What was asked for.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A redirect that is not followed.
    #[error("{} redirects to {:?}: {why}", address(url), address(target))]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it leads, less a query and a user name.
        target: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// An answer or a file that is not what it should be.
    #[error("{}: {why}", address(of))]
    Malformed {
        /// A URL or a file.
        of: String,
        /// What is wrong.
        why: String,
    },
    /// An answer or a file beyond what is read into memory.
    #[error("{}: larger than {}, which nothing of its kind is", address(of), bytes(*limit))]
    TooLarge {
        /// A URL or a file.
        of: String,
        /// Most bytes.
        limit: u64,
    },
    /// A name that would lead out of the folder, or is not fit to be a file's name.
    #[error(
        "{repository}: {} names a file {:?}, which {why}; nothing was written, do not trust this repository",
        shown(of),
        shown(name)
    )]
    HostileName {
        /// `ORG/NAME`.
        repository: String,
        /// What names it: the listing, or an index.
        of: String,
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Only GGUF files.
    #[error(
        "{repository} holds no safetensors but GGUF files, which are converted already: {}; load one, for example with `hf download {repository} {}`, and give its path",
        some(files),
        shown(files.first().map_or("FILE", |f| f))
    )]
    GgufOnly {
        /// `ORG/NAME`.
        repository: String,
        /// Their names.
        files: Vec<String>,
    },
    /// Not a checkpoint that can be converted.
    #[error(
        "{repository} has no {missing}{}; a checkpoint of config.json, tokenizer and safetensors is needed",
        instead(found)
    )]
    NoCheckpoint {
        /// `ORG/NAME`.
        repository: String,
        /// What is missing.
        missing: &'static str,
        /// What is there instead.
        found: Vec<String>,
    },
    /// The index names files that the repository lacks.
    #[error("{repository}: {index} names {} files that the repository lacks: {}", files.len(), some(files))]
    MissingShards {
        /// `ORG/NAME`.
        repository: String,
        /// The index.
        index: String,
        /// Their names.
        files: Vec<String>,
    },
    /// What was loaded is not what the hub announced.
    #[error(
        "{repository}: {} is damaged: its {kind} is {found}, the hub announces {expected}; the loaded part was deleted, try again",
        shown(file)
    )]
    Hash {
        /// `ORG/NAME`.
        repository: String,
        /// The file.
        file: String,
        /// The kind of hash.
        kind: &'static str,
        /// As announced.
        expected: String,
        /// As loaded.
        found: String,
    },
    /// The server sends another file than the listing announced.
    #[error("{repository}: {} changed on the server while it was loaded: {why}; try again", shown(file))]
    Changed {
        /// `ORG/NAME`.
        repository: String,
        /// The file.
        file: String,
        /// What differs.
        why: String,
    },
    /// The disk is too full.
    #[error(
        "{}: {} are to be loaded, {} are free; make room, or set HF_HUB_CACHE to a folder on another disk",
        path.display(),
        bytes(*needed),
        bytes(*free)
    )]
    Space {
        /// The cache.
        path: PathBuf,
        /// Bytes to load.
        needed: u64,
        /// Bytes the disk has free.
        free: u64,
    },
    /// The cache lacks it, and the hub is not to be asked.
    #[error("{repository} is not in the cache {}: {why}; without --offline (HF_HUB_OFFLINE=1) it is loaded", cache.display())]
    NotCached {
        /// `ORG/NAME`.
        repository: String,
        /// The cache.
        cache: PathBuf,
        /// What is missing.
        why: String,
    },
    /// There is nothing of the repository to remove.
    #[error("{repository}: the cache {} holds nothing of it", cache.display())]
    NotStored {
        /// `ORG/NAME`.
        repository: String,
        /// The cache.
        cache: PathBuf,
    },
    /// A file or folder of the cache.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped; what was loaded is kept, so the same command goes on from there")]
    Cancelled,
}

impl HubError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Whether a copy in the cache may stand in: the hub is away or refuses, the repository is not known to be gone.
    pub(crate) fn leaves_the_cache(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Away { .. } | Self::Tls { .. } => true,
            Self::Gated { .. } | Self::Token { .. } => true,
            Self::NoRepository { signed_in, .. } => !signed_in,
            Self::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }
}

/// Name and port of the host of a URL.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    shown(rest.split('/').next().unwrap_or(rest))
}

fn hidden(signed_in: bool) -> &'static str {
    if signed_in {
        ", or the token may not see it; check the spelling"
    } else {
        "; check the spelling, and if it is private or gated, set HF_TOKEN or run `hf auth login`"
    }
}

fn gate(url: &str, signed_in: bool) -> String {
    let accept = format!("accept its terms at {url}");
    if signed_in {
        format!("{accept} with the account of the token (access may have to be granted by its authors)")
    } else {
        format!("{accept}, then set HF_TOKEN or run `hf auth login`")
    }
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", shown(message)) }
}

fn instead(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(", but {}", some(found)) }
}
