//! Which path leads where.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};

use crate::app::{self, Call, Handled, Work};
use crate::error::{ApiError, Dialect};
use crate::{anthropic, openai, openapi, page, tokens};

/// Paths as metrics and logs name them.
const PATHS: &[&str] = &[
    "/",
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
];

/// A path as metrics and logs name it: never a client's text.
pub(crate) fn label(path: &str) -> &'static str {
    let known = PATHS.iter().find(|p| **p == path);
    known.copied().unwrap_or(if path.starts_with("/v1/models/") { "/v1/models/ID" } else { "other" })
}

/// All routes.
pub(crate) fn all() -> Router {
    let read = |work: fn(Arc<Call>, String) -> Work| -> MethodRouter {
        get(move |request: Request| app::get(request, work))
    };
    let write = |work: fn(Arc<Call>, serde_json::Value) -> Work| -> MethodRouter {
        post(move |request: Request| app::post(request, work))
    };
    Router::new()
        .route("/", read(|_, _| Box::pin(async { chat_page() })))
        .route(
            "/health",
            read(|_, _| Box::pin(async { Ok(app::json(&serde_json::json!({ "status": "ok" }))) })),
        )
        .route("/ready", read(|call, _| Box::pin(async move { ready(&call) })))
        .route(
            "/openapi.json",
            read(|_, _| Box::pin(async { Ok(app::text("application/json", openapi::text())) })),
        )
        .route("/metrics", read(|call, _| Box::pin(async move { metrics(&call) })))
        .route("/v1/models", read(|call, _| Box::pin(async move { openai::models::list(&call) })))
        .route(
            "/v1/models/{*id}",
            read(|call, path| Box::pin(async move { openai::models::one(&call, &path) })),
        )
        .route("/v1/chat/completions", write(openai::chat_answer::answer))
        .route("/v1/completions", write(openai::completion_answer::answer))
        .route("/v1/embeddings", write(openai::embeddings::answer))
        .route("/v1/responses", write(openai::response_answer::answer))
        .route("/v1/messages", write(anthropic::answer::answer))
        .route("/v1/messages/count_tokens", write(anthropic::answer::count))
        .route("/tokenize", write(tokens::tokenize))
        .route("/detokenize", write(tokens::detokenize))
        .fallback(|request: Request| async move {
            let path = request.uri().path();
            let shown: String = path.chars().take(200).collect();
            ApiError::no_route(&shown).response(Dialect::of(path))
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let path = request.uri().path();
            ApiError::method(label(path)).response(Dialect::of(path))
        })
}

fn chat_page() -> Handled {
    let mut response: Response = app::text("text/html; charset=utf-8", page::PAGE);
    if let Ok(policy) = HeaderValue::from_str(page::policy()) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response.headers_mut().insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    Ok(response)
}

fn ready(call: &Call) -> Handled {
    if call.app.stopping.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(ApiError::unavailable("shutting_down", "The server is shutting down.", 5));
    }
    Ok(app::json(&serde_json::json!({ "status": "ready" })))
}

fn metrics(call: &Call) -> Handled {
    let models = call.app.models.list();
    let stats: Vec<_> = models.into_iter().filter_map(|e| Some((e.id, e.model?.service.stats()))).collect();
    Ok(app::text("text/plain; version=0.0.4; charset=utf-8", call.app.metrics.text(&stats)))
}
