//! Answers that are sent piece by piece, as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use http_body::Frame;
use serde_json::Value as Json;
use tokio::sync::mpsc;

/// Events on their way to the network. A reader that is slower holds back the task that makes them, and the queue
/// behind that task is bounded too.
const QUEUE: usize = 16;

/// After this much silence a comment is sent, so that no one on the way takes the connection for dead.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Where a task writes events.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// An event without a name, as OpenAI sends them.
    pub(crate) async fn data(&self, value: &Json) -> Result<(), Gone> {
        self.raw(format!("data: {value}\n\n")).await
    }

    /// An event with a name, as Anthropic sends them.
    pub(crate) async fn named(&self, name: &str, value: &Json) -> Result<(), Gone> {
        self.raw(format!("event: {name}\ndata: {value}\n\n")).await
    }

    /// What ends a stream of OpenAI.
    pub(crate) async fn done(&self) -> Result<(), Gone> {
        self.raw("data: [DONE]\n\n".to_owned()).await
    }

    /// A comment: readers skip it.
    pub(crate) async fn ping(&self) -> Result<(), Gone> {
        self.raw(": keep-alive\n\n".to_owned()).await
    }

    /// Waits for what comes next of an answer, unless the client goes away. Now and then the client hears that it waits.
    pub(crate) async fn during<T>(&self, next: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                value = &mut next => return Ok(value),
                () = self.0.closed() => return Err(Gone),
                () = tokio::time::sleep(KEEP_ALIVE) => self.ping().await?,
            }
        }
    }

    async fn raw(&self, text: String) -> Result<(), Gone> {
        self.0.send(Bytes::from(text)).await.map_err(|_| Gone)
    }
}

/// A response, and where its events are written.
pub(crate) fn response() -> (Events, Response) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut response = Response::new(Body::new(Stream(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (Events(sender), response)
}

struct Stream(mpsc::Receiver<Bytes>);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|b| Ok(Frame::data(b))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn events_arrive_in_order_and_the_end_is_seen() {
        let (events, response) = response();
        let write = async move {
            events.data(&json!({ "a": "x\ny" })).await.unwrap();
            events.named("n", &json!(1)).await.unwrap();
            events.done().await.unwrap();
        };
        let read = axum::body::to_bytes(response.into_body(), 1000);
        let ((), bytes) = tokio::join!(write, read);
        let expected = "data: {\"a\":\"x\\ny\"}\n\nevent: n\ndata: 1\n\ndata: [DONE]\n\n";
        assert_eq!(&bytes.unwrap()[..], expected.as_bytes());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed() {
        let (events, response) = response();
        drop(response);
        assert_eq!(events.ping().await, Err(Gone));
        assert_eq!(events.during(std::future::pending::<()>()).await, Err(Gone));
    }
}
