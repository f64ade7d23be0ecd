//! Takes connections, and lets them end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::app::App;

/// Longest time between a connection, or the last answer on it, and the whole head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);
/// Most bytes of a request's head.
const MOST_HEAD: usize = 64 << 10;
/// Most headers of a request.
const MOST_HEADERS: usize = 100;
/// Pause after a connection could not be taken, as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes connections until `stop` says so; then lets those that are there end their answers.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(app.settings.connections.max(1)));
    let mut tasks = JoinSet::new();
    loop {
        let taken = tokio::select! {
            _ = stop.changed() => break,
            taken = next(&listener, &places) => taken,
        };
        while tasks.try_join_next().is_some() {}
        let (stream, place) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                app.log.note(&format!("a connection could not be taken: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (router, app, stop) = (router.clone(), Arc::clone(&app), stop.clone());
        tasks.spawn(async move {
            app.metrics.connections.fetch_add(1, Relaxed);
            serve(stream, router, stop).await;
            app.metrics.connections.fetch_sub(1, Relaxed);
            drop(place);
        });
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// A connection, when there is a place for one.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve(stream: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    // Each chunk of an answer is to leave at once.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    builder.max_buf_size(MOST_HEAD).max_headers(MOST_HEADERS);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let mut stopping = *stop.borrow();
    if stopping {
        connection.as_mut().graceful_shutdown();
    }
    loop {
        tokio::select! {
            // What clients do to their connections is not an error of the server.
            _ = connection.as_mut() => return,
            _ = stop.changed(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
