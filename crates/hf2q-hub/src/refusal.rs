//! What an answer that is no success means.

use std::time::Duration;

use crate::error::HubError;
use crate::retry::Trouble;

/// What was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asked {
    Listing,
    File,
}

/// An answer that is no success.
#[derive(Clone, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) asked: Asked,
    pub(crate) url: &'a str,
    pub(crate) status: u16,
    /// `X-Error-Code`.
    pub(crate) code: &'a str,
    /// The server's words.
    pub(crate) message: String,
    /// How long it asks to wait.
    pub(crate) wait: Option<Duration>,
    /// Whether it came from another host than the hub, after a redirect.
    pub(crate) elsewhere: bool,
}

/// Who asked.
#[derive(Clone, Debug)]
pub(crate) struct Asker<'a> {
    /// `ORG/NAME`.
    pub(crate) repository: &'a str,
    pub(crate) revision: &'a str,
    pub(crate) endpoint: &'a str,
    /// Whether a token was sent.
    pub(crate) signed_in: bool,
}

impl Refusal<'_> {
    /// What to do about it.
    pub(crate) fn trouble(self, asker: &Asker<'_>) -> Trouble {
        let passing = matches!(self.status, 408 | 425 | 429 | 500..) || self.elsewhere;
        if passing {
            let words = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
            return Trouble::Passing { why: format!("HTTP status {}{words}", self.status), wait: self.wait };
        }
        Trouble::Lasting(self.error(asker))
    }

    fn error(self, asker: &Asker<'_>) -> HubError {
        let (repository, endpoint) = (asker.repository.to_owned(), asker.endpoint.to_owned());
        let (url, signed_in) = (format!("{endpoint}/{repository}"), asker.signed_in);
        match (self.code, self.status) {
            ("GatedRepo", _) => HubError::Gated { repository, url, signed_in },
            ("RevisionNotFound", _) => {
                let revision = asker.revision.to_owned();
                HubError::NoRevision { repository, revision, url: format!("{url}/tree/main") }
            }
            ("RepoNotFound", _) => HubError::NoRepository { repository, endpoint, signed_in },
            (_, 404) if self.asked == Asked::Listing => {
                HubError::NoRepository { repository, endpoint, signed_in }
            }
            (_, 401 | 403) if signed_in => {
                HubError::Token { repository, endpoint, status: self.status, message: self.message }
            }
            (_, 401) => HubError::NoRepository { repository, endpoint, signed_in },
            (_, 403) if self.asked == Asked::File => HubError::Gated { repository, url, signed_in },
            (_, status) => HubError::Status { url: self.url.to_owned(), status, message: self.message },
        }
    }
}

/// Seconds from `Retry-After`, or from the hub's `RateLimit: "api";r=0;t=55`.
pub(crate) fn wait(retry_after: Option<&str>, rate_limit: Option<&str>) -> Option<Duration> {
    let limit = || {
        let parts = rate_limit?.split(';').map(str::trim);
        parts.filter_map(|part| part.strip_prefix("t=")).find_map(|t| t.parse().ok())
    };
    let seconds: Option<u64> = retry_after.and_then(|text| text.trim().parse().ok()).or_else(limit);
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(asked: Asked, status: u16, code: &str, signed_in: bool) -> Trouble {
        let refusal = Refusal {
            asked,
            url: "http://hub/x",
            status,
            code,
            message: "words".into(),
            wait: None,
            elsewhere: false,
        };
        refusal.trouble(&Asker { repository: "a/b", revision: "v1", endpoint: "http://hub", signed_in })
    }

    #[test]
    fn refusals_are_told_apart() {
        use Asked::{File, Listing};
        let table = [
            (Listing, 404, "RepoNotFound", true, "NoRepository"),
            (Listing, 404, "", false, "NoRepository"),
            (Listing, 401, "RepoNotFound", false, "NoRepository"),
            (Listing, 401, "", false, "NoRepository"),
            (Listing, 401, "", true, "Token"),
            (Listing, 404, "RevisionNotFound", true, "NoRevision"),
            (File, 401, "GatedRepo", false, "Gated"),
            (File, 403, "GatedRepo", true, "Gated"),
            (File, 403, "", false, "Gated"),
            (File, 403, "", true, "Token"),
            (File, 404, "EntryNotFound", false, "Status"),
            (Listing, 400, "", false, "Status"),
        ];
        for (asked, status, code, signed_in, expected) in table {
            match trouble(asked, status, code, signed_in) {
                Trouble::Lasting(error) => {
                    let variant = format!("{error:?}");
                    assert_eq!(variant.split(' ').next(), Some(expected), "{asked:?} {status} {code}");
                }
                other => panic!("{asked:?} {status} {code}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(trouble(Asked::File, status, "", true), Trouble::Passing { .. }), "{status}");
        }
    }

    #[test]
    fn the_wait_is_what_the_server_asks_for() {
        assert_eq!(wait(Some(" 7"), None), Some(Duration::from_secs(7)));
        assert_eq!(wait(None, Some("\"api\";r=0;t=55")), Some(Duration::from_secs(55)));
        assert_eq!(wait(Some("3"), Some("\"api\";r=0;t=55")), Some(Duration::from_secs(3)));
        assert_eq!(wait(Some("Wed, 21 Oct"), Some("x")), None);
    }
}
