//! What the operator gets to read.

use std::fmt;
use std::sync::Arc;

/// Where lines for the operator go.
#[derive(Clone)]
pub struct Log {
    write: Arc<dyn Fn(&str) + Send + Sync>,
    requests: bool,
}

impl Log {
    /// `write` gets lines without their ends; `requests` says whether each request is one.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static, requests: bool) -> Self {
        Self { write: Arc::new(write), requests }
    }

    /// No lines.
    pub fn silent() -> Self {
        Self::new(|_| {}, false)
    }

    /// Something that the operator should know.
    pub(crate) fn note(&self, line: &str) {
        (self.write)(line);
    }

    /// A request that was answered.
    pub(crate) fn request(&self, line: impl FnOnce() -> String) {
        if self.requests {
            (self.write)(&line());
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("requests", &self.requests).finish_non_exhaustive()
    }
}
