//! Asking the hub: redirects, the token, limits.

use std::io::Read;
use std::net::IpAddr;

use ureq::http::{HeaderMap, Method, Request, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::config::{HubConfig, Token};
use crate::error::HubError;
use crate::refusal::{self, Asked, Asker, Refusal};
use crate::repository::Repository;
use crate::retry::{Signals, Trouble};
use crate::text::address;

/// The hub needs two at most: a renamed repository, then the storage.
const MOST_REDIRECTS: usize = 5;
/// Bytes of a refusal that are read for its words.
const WORDS: u64 = 4096;

/// Asks the hub about one repository.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    agent: Agent,
    /// Without a slash at its end.
    endpoint: String,
    origin: Origin,
    /// `None` also where it would go in the clear.
    token: Option<&'a Token>,
    repository: &'a Repository,
    signals: &'a Signals,
}

/// A successful answer, or the last redirect of a [`Client::look`].
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// What the hub itself calls the content, before it redirects to a storage with tags of its own.
    pub(crate) etag: Option<String>,
    pub(crate) body: Body,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// Scheme, host and port: who gets the token.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Origin {
    secure: bool,
    host: String,
    port: u16,
}

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host().filter(|h| !h.is_empty())?.to_ascii_lowercase();
        Some(Self { secure, host, port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }) })
    }

    /// Whether what is sent there passes no network in the clear.
    fn keeps_secrets(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        self.secure || host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        config: &'a HubConfig,
        repository: &'a Repository,
        signals: &'a Signals,
    ) -> Result<Self, HubError> {
        let endpoint = config.endpoint.trim_end_matches('/').to_owned();
        let bad = || HubError::Setting {
            setting: "the hub's endpoint (HF_ENDPOINT)",
            why: "expected a URL such as https://huggingface.co, without user name, password and query"
                .to_owned(),
        };
        let uri: Uri = endpoint.parse().map_err(|_| bad())?;
        // Messages show the endpoint: nothing that may be secret is taken.
        let plain = !has_user(&uri) && !endpoint.contains(['?', '#']);
        let origin = Origin::of(&uri).filter(|_| plain).ok_or_else(bad)?;
        let token = config.token.as_ref().filter(|_| origin.keeps_secrets());
        if config.token.is_some() && token.is_none() {
            signals.note(format!(
                "The token is not sent to {}, where others could read it on the way; use https",
                address(&endpoint)
            ));
        }
        Ok(Self { agent: agent(config)?, endpoint, origin, token, repository, signals })
    }

    /// Ends every request that is under way.
    pub(crate) fn shutdown(&self) {
        self.agent.clone().shutdown();
    }

    /// An address below the endpoint.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.endpoint)
    }

    /// `GET`, from byte `from` on.
    pub(crate) fn get(&self, url: &str, from: u64, asked: Asked) -> Result<Answer, Trouble> {
        self.ask(&Method::GET, url, from, asked)
    }

    /// `HEAD` at the hub itself: a redirect to a storage is not followed.
    pub(crate) fn look(&self, url: &str) -> Result<Answer, Trouble> {
        self.ask(&Method::HEAD, url, 0, Asked::File)
    }

    /// A whole body of at most `limit` bytes.
    pub(crate) fn read(&self, url: &str, limit: u64, asked: Asked) -> Result<Vec<u8>, Trouble> {
        let answer = self.get(url, 0, asked)?;
        let mut bytes = Vec::new();
        let mut reader = answer.body.into_reader().take(limit + 1);
        reader.read_to_end(&mut bytes).map_err(|e| self.broken(url, &e.into()))?;
        if bytes.len() as u64 > limit {
            return Err(HubError::TooLarge { of: url.to_owned(), limit }.into());
        }
        Ok(bytes)
    }

    fn ask(&self, method: &Method, url: &str, from: u64, asked: Asked) -> Result<Answer, Trouble> {
        let redirect =
            |target: &str, why| HubError::Redirect { url: url.to_owned(), target: address(target), why };
        let mut etag = None;
        let mut target: Uri = url.parse().map_err(|_| redirect(url, "it is not a URL"))?;
        for _ in 0..=MOST_REDIRECTS {
            let at_hub = Origin::of(&target).as_ref() == Some(&self.origin);
            let (parts, body) = self.send(method, &target, from, url)?.into_parts();
            let (status, headers) = (parts.status.as_u16(), parts.headers);
            if at_hub && etag.is_none() {
                let tag = header(&headers, "x-linked-etag").or_else(|| {
                    // A redirect's own tag is not that of the content.
                    header(&headers, "etag").filter(|_| parts.status.is_success())
                });
                etag = tag.map(str::to_owned);
            }
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                if parts.status.is_success() || status == 416 {
                    return Ok(Answer { status, headers, etag, body });
                }
                return Err(self.refusal(asked, url, (status, headers, body), !at_hub));
            }
            let location = header(&headers, "location").unwrap_or_default().to_owned();
            let next = follow(&target, &location).map_err(|why| redirect(&location, why))?;
            if method == Method::HEAD && Origin::of(&next).as_ref() != Some(&self.origin) {
                return Ok(Answer { status, headers, etag, body });
            }
            target = next;
        }
        Err(redirect(&target.to_string(), "these are too many redirects").into())
    }

    fn send(
        &self,
        method: &Method,
        target: &Uri,
        from: u64,
        url: &str,
    ) -> Result<ureq::http::Response<Body>, Trouble> {
        self.signals.check()?;
        let mut request = Request::builder().method(method).uri(target).header("accept-encoding", "identity");
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token
            && Origin::of(target).as_ref() == Some(&self.origin)
        {
            request = request.header("authorization", token.bearer());
        }
        let request = request.body(()).map_err(|e| self.broken(url, &e.into()))?;
        let response = self.agent.run(request).map_err(|e| self.broken(url, &e))?;
        self.signals.hear();
        Ok(response)
    }

    /// A request that ended without an answer, or in the middle of one.
    pub(crate) fn broken(&self, url: &str, error: &ureq::Error) -> Trouble {
        if self.signals.stopped() {
            return HubError::Cancelled.into();
        }
        match error {
            ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                HubError::Tls { url: url.to_owned(), why: e.to_string() }.into()
            }
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
                HubError::Tls { url: url.to_owned(), why: error.to_string() }.into()
            }
            ureq::Error::Io(e) if is_away(e) => Trouble::Away { why: e.to_string() },
            ureq::Error::Io(e) => Trouble::passing(e.to_string()),
            ureq::Error::Timeout(ureq::Timeout::Resolve) => {
                Trouble::Away { why: "no address for it".to_owned() }
            }
            ureq::Error::Timeout(_) => Trouble::passing("no answer"),
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                Trouble::Away { why: error.to_string() }
            }
            ureq::Error::Protocol(_) => Trouble::passing(error.to_string()),
            ureq::Error::ConnectProxyFailed(why) => Trouble::passing(format!("the proxy refuses: {why}")),
            // Its words are the address, which may be a signed link.
            ureq::Error::BadUri(_) => {
                HubError::Malformed { of: url.to_owned(), why: "it leads to what is no URL".to_owned() }
                    .into()
            }
            other => HubError::Malformed { of: url.to_owned(), why: other.to_string() }.into(),
        }
    }

    fn refusal(&self, asked: Asked, url: &str, answer: (u16, HeaderMap, Body), elsewhere: bool) -> Trouble {
        let (status, headers, body) = answer;
        let mut words = Vec::new();
        // The words are a help; that they cannot be read changes nothing.
        let _ = body.into_reader().take(WORDS).read_to_end(&mut words);
        let told = serde_json::from_slice::<serde_json::Value>(&words).ok();
        let told = told.as_ref().and_then(|v| v.get("error")?.as_str());
        let message = header(&headers, "x-error-message").or(told).unwrap_or_default().to_owned();
        let code = header(&headers, "x-error-code").unwrap_or_default();
        let wait = refusal::wait(header(&headers, "retry-after"), header(&headers, "ratelimit"));
        let asker = Asker {
            repository: self.repository.id(),
            revision: self.repository.revision(),
            endpoint: &self.endpoint,
            signed_in: self.token.is_some(),
        };
        Refusal { asked, url, status, code, message, wait, elsewhere }.trouble(&asker)
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

fn agent(config: &HubConfig) -> Result<Agent, HubError> {
    let patience = config.patience;
    let mut builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("hf2q/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(patience.connect))
        .timeout_connect(Some(patience.connect))
        .timeout_recv_response(Some(patience.silence))
        .timeout_per_read(Some(patience.silence))
        .timeout_per_write(Some(patience.silence));
    if !config.environment_proxy {
        builder = builder.proxy(None);
    }
    if let Some(path) = &config.certificates {
        builder = builder.tls_config(TlsConfig::builder().root_certs(certificates(path)?).build());
    }
    Ok(builder.build().into())
}

fn certificates(path: &std::path::Path) -> Result<RootCerts, HubError> {
    let pem = std::fs::read(path).map_err(HubError::io(path))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(HubError::Setting {
            setting: "the file of certificates (SSL_CERT_FILE)",
            why: format!("{} holds no certificate in PEM form", path.display()),
        });
    }
    Ok(RootCerts::from(certificates))
}

/// Whether a URL has a user name, perhaps with a password.
fn has_user(uri: &Uri) -> bool {
    uri.authority().is_some_and(|a| a.as_str().contains('@'))
}

/// Whether there was no connection: refused, or the name has no address, which has no kind of its own.
fn is_away(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
        || error.to_string().starts_with("failed to lookup address")
}

/// Where a redirect leads. A secure connection is not left for an open one.
fn follow(from: &Uri, location: &str) -> Result<Uri, &'static str> {
    let (scheme, authority) = (from.scheme_str().unwrap_or_default(), from.authority());
    let absolute = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{}{location}", authority.map_or("", |a| a.as_str()))
    } else {
        location.to_owned()
    };
    let target: Uri = absolute.parse().map_err(|_| "that is not a URL")?;
    let origin = Origin::of(&target).ok_or("only http and https are followed")?;
    if has_user(&target) {
        return Err("a URL with a user name is not followed");
    }
    if !origin.secure && scheme == "https" {
        return Err("a secure connection is not left for an open one");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String, &'static str> {
        follow(&from.parse().unwrap(), location).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_lead_to_what_they_name() {
        let hub = "https://hub.co:8443/a/b?x=1";
        assert_eq!(to(hub, "/c?y=%2F").unwrap(), "https://hub.co:8443/c?y=%2F");
        assert_eq!(to(hub, "//cdn.co/c").unwrap(), "https://cdn.co/c");
        assert_eq!(to(hub, "https://cdn.co/c").unwrap(), "https://cdn.co/c");
        assert_eq!(to("http://hub.co/", "http://other:1/").unwrap(), "http://other:1/");
        for bad in
            ["http://hub.co/c", "file:///etc/passwd", "", "c", "https://u:p@hub.co/", "https:///x", "a b"]
        {
            assert!(to(hub, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn secrets_go_to_secure_and_near_hosts_only() {
        let keeps = |text: &str| Origin::of(&text.parse().unwrap()).unwrap().keeps_secrets();
        for near in [
            "https://hub.co",
            "http://localhost:8080",
            "http://127.0.0.1:1",
            "http://127.1.2.3",
            "http://[::1]:80",
        ] {
            assert!(keeps(near), "{near}");
        }
        for far in [
            "http://hub.co",
            "http://localhost.hub.co",
            "http://127.0.0.1.hub.co",
            "http://10.0.0.1",
            "http://[::2]",
        ] {
            assert!(!keeps(far), "{far}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |text: &str| Origin::of(&text.parse().unwrap()).unwrap();
        assert_eq!(origin("https://Hub.co/a"), origin("https://hub.co:443/b"));
        for other in ["http://hub.co", "https://hub.co:444", "https://cdn.hub.co", "https://hub.co.evil.net"]
        {
            assert_ne!(origin("https://hub.co"), origin(other), "{other}");
        }
    }
}
