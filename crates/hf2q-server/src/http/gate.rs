//! Who may ask: names and origins that pages of other sites cannot have, keys, and what browsers ask beforehand.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION,
    HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::error::ApiError;
use crate::settings::{ApiKey, Settings};

/// Paths that need no key: they say nothing about models or answers.
const OPEN: &[&str] = &["/", "/health", "/ready", "/openapi.json", "/favicon.ico"];

/// Decides about a request before it is looked at. `Ok(Some)` is an answer to a browser's question beforehand.
pub(crate) fn admit(settings: &Settings, request: &Request) -> Result<Option<Response>, ApiError> {
    let headers = request.headers();
    check_host(settings, headers)?;
    check_origin(settings, headers)?;
    if request.method() == Method::OPTIONS {
        return Ok(Some(preflight(headers)));
    }
    if settings.keys.is_empty() || OPEN.contains(&request.uri().path()) {
        return Ok(None);
    }
    match given_key(headers) {
        Some(key) if ApiKey::any(&settings.keys, key) => Ok(None),
        _ => Err(ApiError::unauthorized()),
    }
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|h| h.to_str().ok()).and_then(|h| {
        let (scheme, key) = h.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| headers.get("x-api-key").and_then(|h| h.to_str().ok()).map(str::trim))
}

/// A page of another site can make its own name lead to this machine; it then calls the server by that name.
fn check_host(settings: &Settings, headers: &HeaderMap) -> Result<(), ApiError> {
    if !settings.host.is_loopback() && settings.hosts.is_empty() {
        return Ok(());
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(ApiError::body("The header 'Host' must be there once."));
    };
    let name = host.to_str().map(host_name).unwrap_or_default().to_ascii_lowercase();
    let own = name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == settings.host);
    if own || settings.hosts.iter().any(|h| h.eq_ignore_ascii_case(&name)) {
        return Ok(());
    }
    let name: String = name.chars().take(100).collect();
    Err(ApiError::forbidden(format!(
        "The host '{name}' is not one of this server's names. If it should be, start it with --allow-host {name}."
    )))
}

/// `[::1]:80` to `::1`, `a.b:80` to `a.b`.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Browsers say which page asks. The server's own page may, and those of allowed origins.
fn check_origin(settings: &Settings, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, o)| !host.is_empty() && o.eq_ignore_ascii_case(host));
    if own || allowed(settings, origin) {
        return Ok(());
    }
    let origin: String = origin.chars().take(100).collect();
    Err(ApiError::forbidden(format!(
        "Pages of '{origin}' may not use this server. If they should, start it with --cors {origin}."
    )))
}

fn allowed(settings: &Settings, origin: &str) -> bool {
    settings.cors.iter().any(|c| c == "*" || c.eq_ignore_ascii_case(origin))
}

/// Origins are checked; what remains is to say yes.
fn preflight(headers: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let out = response.headers_mut();
    out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(wanted) = wanted {
        out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    }
    response
}

/// Adds to every response what browsers want to see before they hand it to a page of an allowed origin.
pub(crate) fn mark(settings: &Settings, origin: Option<HeaderValue>, response: &mut Response) {
    if settings.cors.is_empty() {
        return;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin.filter(|o| o.to_str().is_ok_and(|o| allowed(settings, o))) else { return };
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let exposed = HeaderValue::from_static("x-request-id, request-id, retry-after");
    response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let builder = Request::builder().method(method).uri(path);
        let builder = headers.iter().fold(builder, |b, (name, value)| b.header(*name, *value));
        builder.body(Body::empty()).unwrap()
    }

    fn status(settings: &Settings, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        match admit(settings, &request(method, path, headers)) {
            Ok(None) => 200,
            Ok(Some(response)) => response.status().as_u16(),
            Err(error) => error.status.as_u16(),
        }
    }

    #[test]
    fn foreign_names_are_refused_on_loopback_alone() {
        let local = Settings::default();
        let get = |s: &Settings, host: &str| status(s, "GET", "/v1/models", &[("host", host)]);
        for own in ["localhost:8080", "127.0.0.1", "[::1]:1", "page.localhost", "LOCALHOST"] {
            assert_eq!(get(&local, own), 200, "{own}");
        }
        for foreign in ["evil.org", "localhost.evil.org:8080", "", "127.0.0.1.evil.org", "10.0.0.1"] {
            assert_eq!(get(&local, foreign), 403, "{foreign}");
        }
        assert_eq!(status(&local, "GET", "/", &[]), 400);
        assert_eq!(get(&Settings { hosts: vec!["evil.org".into()], ..local.clone() }, "evil.org:80"), 200);
        let public = Settings { host: [0, 0, 0, 0].into(), ..local };
        assert_eq!(get(&public, "my.server"), 200);
    }

    #[test]
    fn pages_of_other_origins_need_permission() {
        let closed = Settings::default();
        let open = Settings { cors: vec!["https://a.org".into()], ..closed.clone() };
        let post = |s: &Settings, origin: &str| {
            status(s, "POST", "/v1/completions", &[("host", "localhost:1"), ("origin", origin)])
        };
        assert_eq!(post(&closed, "http://localhost:1"), 200);
        assert_eq!(post(&closed, "http://localhost:2"), 403);
        assert_eq!(post(&closed, "null"), 403);
        assert_eq!(post(&open, "https://a.org"), 200);
        assert_eq!(post(&open, "https://b.org"), 403);
    }

    #[test]
    fn a_preflight_needs_no_key_and_a_request_does() {
        let keys = vec![ApiKey::new("secret").unwrap()];
        let settings = Settings { keys, cors: vec!["*".into()], ..Settings::default() };
        let base = [("host", "localhost"), ("origin", "https://a.org")];
        let with = |method: &str, extra: (&str, &str)| {
            status(&settings, method, "/v1/models", &[base[0], base[1], extra])
        };
        assert_eq!(with("OPTIONS", ("x", "y")), 204);
        assert_eq!(with("GET", ("x", "y")), 401);
        assert_eq!(with("GET", ("authorization", "Bearer wrong")), 401);
        assert_eq!(with("GET", ("authorization", "bearer secret")), 200);
        assert_eq!(with("GET", ("x-api-key", "secret")), 200);
        assert_eq!(status(&settings, "GET", "/health", &base), 200);
        assert_eq!(status(&settings, "GET", "/metrics", &base), 401);
    }
}
