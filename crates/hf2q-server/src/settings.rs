//! What the operator decides.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::error::ServerError;

/// How a server behaves. The default listens on this machine alone and asks for no key.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Keys that clients must show one of; none: everybody may ask.
    pub keys: Vec<ApiKey>,
    /// Origins whose pages may use the server from a browser, such as `https://example.org`; `*` is all.
    pub cors: Vec<String>,
    /// Further names by which clients may call the server. On a loopback address any other name than those of this machine is
    /// refused, for it may be that of a foreign page.
    pub hosts: Vec<String>,
    /// Most bytes of a body.
    pub max_body: usize,
    /// Connections at the same time.
    pub connections: usize,
    /// Longest time from a request to the end of its answer; `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// How long a request waits for its model to be loaded before the client is told to come again.
    pub load_patience: Duration,
    /// How long answers may take to end when the server is stopped.
    pub shutdown_patience: Duration,
    /// A model that nobody asked for this long is unloaded; `None`: never.
    pub idle: Option<Duration>,
    /// Bytes that loaded models may take together; models that nobody uses are unloaded for others.
    pub models_memory: Option<u64>,
    /// Pieces of an answer that may wait for a client that reads slowly; with more it loses the answer.
    pub backlog: usize,
    /// Most texts in one request for embeddings, or prompts for completions.
    pub max_inputs: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            keys: Vec::new(),
            cors: Vec::new(),
            hosts: Vec::new(),
            max_body: 8 << 20,
            connections: 512,
            timeout: None,
            load_patience: Duration::from_secs(60),
            shutdown_patience: Duration::from_secs(30),
            idle: None,
            models_memory: None,
            backlog: 4096,
            max_inputs: 256,
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let origin = |o: &&String| *o != "*" && (!o.contains("://") || o.ends_with('/'));
        if let Some(bad) = self.cors.iter().find(origin) {
            let accepted = "an origin is SCHEME://HOST[:PORT] without a path, or *";
            return Err(ServerError::Setting { what: "--cors", found: bad.clone(), accepted });
        }
        Ok(())
    }
}

/// A secret by which a client is known. Only its hash is kept; it is not shown by `{:?}`.
#[derive(Clone)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// Takes a key, less white space around it. `None` if nothing remains, or it cannot stand in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(hash(text)))
    }

    /// Whether one of `keys` is this text. Time does not depend on where they differ, nor on which it is.
    pub(crate) fn any(keys: &[Self], text: &str) -> bool {
        let found = hash(text);
        let differs = |key: &Self| key.0.iter().zip(&found).fold(0u8, |sum, (a, b)| sum | (a ^ b)) != 0;
        keys.iter().fold(false, |any, key| any | !differs(key))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

fn hash(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole_and_never_shown() {
        let keys = ["one", " two\n"].map(|k| ApiKey::new(k).unwrap());
        assert!(ApiKey::any(&keys, "one") && ApiKey::any(&keys, "two"));
        assert!(!ApiKey::any(&keys, "on") && !ApiKey::any(&keys, "") && !ApiKey::any(&[], "one"));
        assert!(!format!("{keys:?}").contains("one"));
        assert!(["", " ", "a b", "ä"].iter().all(|bad| ApiKey::new(bad).is_none()));
    }

    #[test]
    fn an_origin_has_no_path() {
        let check = |o: &str| Settings { cors: vec![o.into()], ..Settings::default() }.check().is_ok();
        assert!(check("*") && check("https://a.org") && check("http://localhost:3000"));
        assert!(!check("a.org") && !check("https://a.org/"));
    }
}
