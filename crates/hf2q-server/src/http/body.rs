//! Reads bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use serde_json::Value as Json;

use crate::error::ApiError;

/// A client that sends its body more slowly than this occupies a place for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// The JSON value of a body. Values may lie 127 deep in each other.
pub(crate) async fn json(headers: &HeaderMap, body: Body, limit: usize) -> Result<Json, ApiError> {
    let bytes = bytes(headers, body, limit).await?;
    if bytes.is_empty() {
        return Err(ApiError::body("The body is empty; a JSON object is expected."));
    }
    serde_json::from_slice(&bytes).map_err(|e| ApiError::body(format!("The body is no valid JSON: {e}.")))
}

async fn bytes(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let said = headers.get(CONTENT_LENGTH).and_then(|h| h.to_str().ok()).and_then(|h| h.parse::<u64>().ok());
    if said.is_some_and(|n| n > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, limit)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_limit(&error) => Err(ApiError::too_large(limit)),
        Ok(Err(_)) => Err(ApiError::body("The body broke off.")),
        Err(_) => Err(ApiError::too_slow()),
    }
}

/// Whether the body was longer than allowed: its error lies below the ones that carry it.
fn is_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.to_string().contains("length limit") {
            return true;
        }
        cause = current.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn status(text: &str, limit: usize) -> u16 {
        let read = json(&HeaderMap::new(), Body::from(text.to_owned()), limit).await;
        read.map_or_else(|e| e.status.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn bodies_are_bounded() {
        assert_eq!(status("{\"a\": 1}", 8).await, 200);
        assert_eq!(status("{\"a\": 11}", 8).await, 413);
        assert_eq!(status("", 8).await, 400);
        assert_eq!(status("{", 8).await, 400);
        assert_eq!(status(&"[".repeat(1000), 1000).await, 400);
    }
}
