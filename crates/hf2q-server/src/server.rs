//! Starts and ends a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::{self, App};
use crate::error::ServerError;
use crate::http::connections;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{Models, Source};
use crate::settings::Settings;

/// How often models that nobody uses are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// How long connections have after their answers were cut.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that takes requests on threads of its own.
pub struct Server {
    runtime: Runtime,
    app: Arc<App>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    connections: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and answers from now on.
    ///
    /// # Errors
    /// The address cannot be had, a setting cannot work, two models have one name.
    pub fn start(settings: Settings, models: Vec<Box<dyn Source>>, log: Log) -> Result<Self, ServerError> {
        settings.check()?;
        let models = Arc::new(Models::new(models, &settings, log.clone())?);
        // Tasks here only move text about; the threads that compute belong to the engines.
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("http").enable_all().build();
        let runtime = runtime.map_err(ServerError::Runtime)?;
        let wanted = SocketAddr::new(settings.host, settings.port);
        let listen = |source| ServerError::Listen { address: wanted.to_string(), source };
        let listener = runtime.block_on(TcpListener::bind(wanted)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let metrics = Arc::new(Metrics::new());
        let app = Arc::new(App { settings, models, metrics, log, stopping: AtomicBool::new(false) });
        let (stop, stopped) = watch::channel(false);
        let router = app::router(&app);
        let connections = runtime.spawn(connections::accept(listener, router, Arc::clone(&app), stopped));
        let sweeper = Arc::clone(&app.models);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                sweeper.sweep();
            }
        });
        Ok(Self { runtime, app, address, stop, connections: Some(connections) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loads a model now. Blocks.
    ///
    /// # Errors
    /// It cannot be loaded. The text says why, which clients are not told.
    pub fn load(&self, id: &str) -> Result<(), String> {
        let loaded = self.runtime.block_on(self.app.models.get(id)).map(drop);
        loaded.map_err(|e| self.app.models.failure(id).unwrap_or_else(|| e.to_string()))
    }

    /// Waits for the signal to end (Ctrl-C, or `SIGTERM`) and ends as [`Server::stop`] does. A second signal cuts the answers.
    pub fn run(mut self) {
        self.runtime.block_on(signal());
        self.app.log.note("stopping: answers under way may end; a second signal cuts them");
        let patience = self.app.settings.shutdown_patience;
        self.end(patience, true);
    }

    /// Takes no more requests, lets answers end for `patience`, cuts the others, and closes all connections. Blocks.
    pub fn stop(mut self, patience: Duration) {
        self.end(patience, false);
    }

    fn end(&mut self, patience: Duration, signals: bool) {
        self.app.stopping.store(true, Relaxed);
        // The receivers may be gone already.
        let _ = self.stop.send(true);
        let deadline = Instant::now() + patience;
        let Some(mut connections) = self.connections.take() else { return };
        self.runtime.block_on(async {
            let cut = async {
                match signals {
                    true => signal().await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut connections => return,
                () = cut => {}
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
            // The engines end what is left, and each stream says so to its client.
            let models = Arc::clone(&self.app.models);
            let cutting = tokio::task::spawn_blocking(move || models.shutdown(Instant::now()));
            let _ = tokio::time::timeout(LAST_WORDS, &mut connections).await;
            connections.abort();
            let _ = cutting.await;
        });
        self.app.models.shutdown(Instant::now());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO, false);
    }
}

/// The next signal to end.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without handlers the system ends the process.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
