//! What all routes share, and what happens around each request.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use serde_json::Value as Json;
use tokio::task::JoinSet;

use crate::answers::Reader;
use crate::conversation::{Failure, Tokens};
use crate::error::{ApiError, Dialect, Refused};
use crate::http::{body, gate};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::settings::Settings;
use crate::{ids, routes};

/// The server's state.
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) models: Arc<Models>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
    /// No new request is taken.
    pub(crate) stopping: AtomicBool,
}

/// One request, from its first byte to the last one of its answer.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) dialect: Dialect,
    /// The name under which it is in the log.
    pub(crate) id: String,
    route: &'static str,
    method: String,
    started: Instant,
    status: AtomicU16,
    tokens: [AtomicUsize; 3],
    /// Why it was refused, for the log; a path that is none of ours is named there.
    refused: OnceLock<String>,
}

/// The answer of a route.
pub(crate) type Handled = Result<Response, ApiError>;
/// A route at work.
pub(crate) type Work = Pin<Box<dyn Future<Output = Handled> + Send>>;

impl Call {
    /// When the answer must be ready.
    pub(crate) fn reader(&self, streaming: bool) -> Reader {
        let deadline = self.app.settings.timeout.map(|t| self.started + t);
        let backlog = streaming.then_some(self.app.settings.backlog);
        Reader { metrics: Arc::clone(&self.app.metrics), deadline, backlog }
    }

    /// Notes what the answer took, for the log.
    pub(crate) fn count(&self, tokens: Tokens) {
        for (slot, n) in self.tokens.iter().zip([tokens.prompt, tokens.cached, tokens.answer]) {
            slot.store(n, Relaxed);
        }
    }

    /// What the client is told of a failure; the operator is told more.
    pub(crate) fn failed(&self, failure: Failure) -> ApiError {
        if let Some(detail) = failure.detail {
            self.app.log.note(&format!("{} {}: {detail}", self.id, self.route));
        }
        failure.error
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let status = self.status.load(Relaxed);
        self.app.metrics.in_flight.fetch_sub(1, Relaxed);
        self.app.metrics.latency.record(seconds);
        self.app.metrics.request(self.route, status);
        self.app.log.request(|| {
            let [prompt, cached, answer] = self.tokens.each_ref().map(|n| n.load(Relaxed));
            let tokens = match prompt {
                0 => String::new(),
                _ => format!(" · prompt {prompt} ({cached} cached) · answer {answer}"),
            };
            let why = self.refused.get().map(|why| format!(" · {why}")).unwrap_or_default();
            let ended = if status == 0 { "gone".to_owned() } else { status.to_string() };
            format!("{} {} {} {ended} {seconds:.3} s{tokens}{why}", self.id, self.method, self.route)
        });
    }
}

/// All routes behind the gate.
pub(crate) fn router(app: &Arc<App>) -> Router {
    routes::all().layer(from_fn_with_state(Arc::clone(app), around))
}

/// What happens around each request.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let call = Arc::new(Call {
        dialect: Dialect::of(path),
        id: ids::name("req_"),
        route: routes::label(path),
        method: request.method().as_str().chars().take(16).collect(),
        started: Instant::now(),
        status: AtomicU16::new(0),
        tokens: [const { AtomicUsize::new(0) }; 3],
        refused: OnceLock::new(),
        app: Arc::clone(&app),
    });
    app.metrics.in_flight.fetch_add(1, Relaxed);
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = match gate::admit(&app.settings, &request) {
        Err(error) => error.response(call.dialect),
        Ok(Some(response)) => response,
        Ok(None) => {
            request.extensions_mut().insert(Arc::clone(&call));
            guarded(&call, request, next).await
        }
    };
    if let Some(Refused(why)) = response.extensions_mut().remove() {
        // The only one who sets it.
        let _ = call.refused.set(why);
    }
    call.status.store(response.status().as_u16(), Relaxed);
    gate::mark(&app.settings, origin, &mut response);
    if let Ok(id) = HeaderValue::from_str(&call.id) {
        response.headers_mut().insert("x-request-id", id.clone());
        response.headers_mut().insert("request-id", id);
    }
    response
}

/// A defect in a route costs its request and nothing else. Where the client goes away, the task goes with it.
async fn guarded(call: &Call, request: Request, next: Next) -> Response {
    let mut task = JoinSet::new();
    task.spawn(next.run(request));
    match task.join_next().await {
        Some(Ok(response)) => response,
        _ => {
            call.app.log.note(&format!("{} {}: the route panicked", call.id, call.route));
            ApiError::internal().response(call.dialect)
        }
    }
}

/// Runs a route that takes no body.
pub(crate) async fn get(request: Request, work: fn(Arc<Call>, String) -> Work) -> Response {
    let Some(call) = request.extensions().get::<Arc<Call>>().cloned() else {
        return ApiError::internal().response(Dialect::OpenAi);
    };
    let dialect = call.dialect;
    let path = request.uri().path().to_owned();
    work(call, path).await.unwrap_or_else(|e| e.response(dialect))
}

/// Runs a route that takes a JSON object.
pub(crate) async fn post(request: Request, work: fn(Arc<Call>, Json) -> Work) -> Response {
    let Some(call) = request.extensions().get::<Arc<Call>>().cloned() else {
        return ApiError::internal().response(Dialect::OpenAi);
    };
    let dialect = call.dialect;
    if call.app.stopping.load(Relaxed) {
        return ApiError::unavailable("shutting_down", "The server is shutting down.", 5).response(dialect);
    }
    let (parts, content) = request.into_parts();
    match read(&parts.headers, content, call.app.settings.max_body).await {
        Ok(json) => {
            let json = with_model(&call, json);
            work(call, json).await.unwrap_or_else(|e| e.response(dialect))
        }
        Err(error) => error.response(dialect),
    }
}

/// A request with its model; where there is one only, it need not be named.
fn with_model(call: &Call, mut json: Json) -> Json {
    if let Json::Object(fields) = &mut json
        && fields.get("model").is_none_or(Json::is_null)
        && let Some(only) = call.app.models.only()
    {
        fields.insert("model".to_owned(), only.into());
    }
    json
}

async fn read(headers: &HeaderMap, content: Body, limit: usize) -> Result<Json, ApiError> {
    body::json(headers, content, limit).await
}

/// A response of JSON.
pub(crate) fn json(value: &Json) -> Response {
    text("application/json", value.to_string())
}

/// A response of any text.
pub(crate) fn text(kind: &'static str, content: impl Into<Body>) -> Response {
    let mut response = Response::new(content.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
