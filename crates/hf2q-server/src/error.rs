//! What a client is told when something cannot be done, in the form of either dialect.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value as Json, json};

/// Whose clients a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

impl Dialect {
    /// By the path of a request.
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/v1/messages") { Self::Anthropic } else { Self::OpenAi }
    }
}

/// Rides on a response: why the request was refused, as one line for the log.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) String);

impl Refused {
    /// Words for the log that may be a client's.
    const LONGEST: usize = 300;

    fn new(error: &ApiError) -> Self {
        let one_line = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
        Self(error.message.chars().take(Self::LONGEST).map(one_line).collect())
    }
}

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// OpenAI's `code`.
    pub(crate) code: Option<&'static str>,
    /// The field of the request that is wrong, as a path.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    /// Seconds.
    pub(crate) retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, code, param: None, message: message.into(), retry_after: None }
    }

    fn of(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// A field whose value is not accepted.
    pub(crate) fn value(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some("invalid_value"), message).of(param)
    }

    /// A part of a message that is no text; `kind` is what the client calls it.
    pub(crate) fn no_part(param: String, kind: &str) -> Self {
        let kind: String = kind.chars().take(100).collect();
        Self::unsupported(param, format!("Parts of type '{kind}' are not supported: this server reads text."))
    }

    /// A field or value that exists in the API, but not here.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some("unsupported_parameter"), message).of(param)
    }

    /// A body that is no request at all.
    pub(crate) fn body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some("invalid_body"), message)
    }

    pub(crate) fn unknown_field(param: String) -> Self {
        let message = format!("Unknown field: '{param}'. It would have no effect, so it is refused.");
        Self::new(StatusCode::BAD_REQUEST, Some("unknown_parameter"), message).of(param)
    }

    pub(crate) fn missing(param: String) -> Self {
        let message = format!("Missing required field: '{param}'.");
        Self::new(StatusCode::BAD_REQUEST, Some("missing_required_parameter"), message).of(param)
    }

    pub(crate) fn unauthorized() -> Self {
        let message =
            "No valid API key was given. Send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.";
        Self::new(StatusCode::UNAUTHORIZED, Some("invalid_api_key"), message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, Some("forbidden"), message)
    }

    pub(crate) fn no_route(path: &str) -> Self {
        let message = format!("Unknown path: {path}. The paths are listed by GET /openapi.json.");
        Self::new(StatusCode::NOT_FOUND, Some("unknown_url"), message)
    }

    pub(crate) fn method(path: &str) -> Self {
        let message = format!("This method is not allowed on {path}.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed"), message)
    }

    pub(crate) fn no_model(name: &str, known: &[&str]) -> Self {
        let name: String = name.chars().take(100).collect();
        let message = format!("The model '{name}' does not exist here. There are: {}.", known.join(", "));
        Self::new(StatusCode::NOT_FOUND, Some("model_not_found"), message).of("model")
    }

    /// More tokens than the context has.
    pub(crate) fn context(prompt: usize, context: usize, param: &str) -> Self {
        let message = format!(
            "This model's maximum context length is {context} tokens. However, your prompt has {prompt} tokens. Please shorten it."
        );
        Self::new(StatusCode::BAD_REQUEST, Some("context_length_exceeded"), message).of(param)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("The body has more than {limit} bytes, which is the limit (--max-body).");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Some("request_too_large"), message)
    }

    pub(crate) fn too_slow() -> Self {
        let message = "The body did not arrive in time.";
        Self::new(StatusCode::REQUEST_TIMEOUT, Some("request_timeout"), message)
    }

    pub(crate) fn queue_full(seconds: u64) -> Self {
        let message = "Too many requests are waiting. Try again later.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"), message).after(seconds)
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>, seconds: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message).after(seconds)
    }

    pub(crate) fn deadline() -> Self {
        let message =
            "The answer was not ready within the time that this server gives to a request (--timeout).";
        Self::new(StatusCode::GATEWAY_TIMEOUT, Some("timeout"), message)
    }

    /// What went wrong is written to the log, not sent.
    pub(crate) fn internal() -> Self {
        let message = "The server failed to compute an answer. Its log says why.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Some("internal_error"), message)
    }

    /// The body that says it.
    pub(crate) fn json(&self, dialect: Dialect) -> Json {
        match dialect {
            Dialect::OpenAi => json!({ "error": {
                "message": self.message, "type": self.kind(), "param": self.param, "code": self.code,
            }}),
            Dialect::Anthropic => {
                let message = match &self.param {
                    Some(param) if !self.message.contains(param.as_str()) => {
                        format!("{param}: {}", self.message)
                    }
                    _ => self.message.clone(),
                };
                json!({ "type": "error", "error": { "type": self.anthropic_kind(), "message": message } })
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The whole response.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = Response::new(Body::from(self.json(dialect).to_string()));
        *response.status_mut() = self.status;
        if self.status.is_client_error() {
            response.extensions_mut().insert(Refused::new(self));
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Why a server could not start or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gives no threads or timers.
    #[error("the server's threads cannot be started: {0}")]
    Runtime(std::io::Error),
    /// Two models would have one name.
    #[error("two models are named {id:?}; name one of them, as in NAME=PATH")]
    SameName {
        /// The name.
        id: String,
    },
    /// A setting outside its range.
    #[error("{what} is {found:?}: {accepted}")]
    Setting {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: String,
        /// What is accepted.
        accepted: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_say_what_and_where() {
        let error = ApiError::missing("messages".into());
        let openai = error.json(Dialect::OpenAi);
        assert_eq!(openai["error"]["param"], "messages");
        assert_eq!(openai["error"]["type"], "invalid_request_error");
        let anthropic = ApiError::value("top_k", "too small").json(Dialect::Anthropic);
        assert_eq!(anthropic["error"]["message"], "top_k: too small");
        assert_eq!(anthropic["type"], "error");
    }

    #[test]
    fn a_retry_is_never_asked_for_at_once() {
        let response = ApiError::queue_full(0).response(Dialect::OpenAi);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.status(), 429);
    }
}
