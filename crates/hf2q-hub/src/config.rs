//! What the caller decides.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where repositories come from and where they are kept.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The hub, for example `https://huggingface.co`; a path behind the host is kept.
    pub endpoint: String,
    /// The cache folder: what Python calls `HF_HUB_CACHE`.
    pub cache: PathBuf,
    /// Sent to the endpoint and to no other host; over `http` only if that is this machine.
    pub token: Option<Token>,
    /// Use the cache only, open no connection.
    pub offline: bool,
    /// Let `ureq` take a proxy from `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY`, with the exceptions of `NO_PROXY`.
    pub environment_proxy: bool,
    /// A PEM file of certificates to trust instead of Mozilla's, for networks that look into TLS.
    pub certificates: Option<PathBuf>,
    /// Files loaded at the same time, at least 1.
    pub parallel: usize,
    /// How long to wait and how often to try.
    pub patience: Patience,
}

impl HubConfig {
    /// The public hub without a token.
    pub fn new(cache: PathBuf) -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            cache,
            token: None,
            offline: false,
            environment_proxy: true,
            certificates: None,
            parallel: 4,
            patience: Patience::default(),
        }
    }
}

/// A secret: it is not shown by `{:?}`.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(String);

impl Token {
    /// Takes a token, less white space around it. `None` if nothing remains, or it cannot stand in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// How long to wait and how often to try.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Failed attempts in a row before giving up, at least 1; one that brings new bytes is the first of a new row.
    pub attempts: u32,
    /// The pause after the first of them; it doubles each time.
    pub first_pause: Duration,
    /// Longest pause, also where the hub asks for a longer one.
    pub longest_pause: Duration,
    /// Longest time to open a connection.
    pub connect: Duration,
    /// Longest silence of the other side.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_trimmed_checked_and_never_shown() {
        let token = Token::new(" hf_secret\n").unwrap();
        assert_eq!(token.bearer(), "Bearer hf_secret");
        assert!(!format!("{token:?}").contains("secret"));
        for bad in ["", " \n", "a b", "a\r\nHost: x", "ä"] {
            assert_eq!(Token::new(bad), None, "{bad:?}");
        }
    }
}
