//! From a request to the answers of the engine.

use std::sync::Arc;
use std::time::Instant;

use hf2q_engine::{DraftUse, Event, Job, Rejected, Sink, Task, Ticket, Usage};
use tokio::sync::mpsc;

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::models::Lease;
use crate::tap::{End, Piece, Tap, Wanted};

/// Several jobs under way, and their pieces as they come. Dropping it cancels what is not done.
pub(crate) struct Answers {
    receiver: mpsc::Receiver<(usize, Piece)>,
    open: usize,
    _tickets: Vec<Ticket>,
    /// The model stays loaded.
    pub(crate) lease: Lease,
    metrics: Arc<Metrics>,
}

/// Who reads the pieces, and how long he may wait for them.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) deadline: Option<Instant>,
    /// How many of them may wait for a client that reads them as they come; `None`: they are collected here.
    pub(crate) backlog: Option<usize>,
}

/// A job, and how its tokens become text.
pub(crate) struct Order {
    pub(crate) prompt: Vec<u32>,
    pub(crate) task: Task,
    pub(crate) wanted: Wanted,
}

impl Answers {
    /// Gives the jobs to the model's engine: all, or none.
    pub(crate) fn start(lease: Lease, orders: Vec<Order>, reader: &Reader) -> Result<Self, ApiError> {
        let limits = lease.service.limits();
        if orders.len() > limits.queue {
            let message =
                format!("{} answers are asked for at once; accepted: up to {}.", orders.len(), limits.queue);
            return Err(ApiError::value("n", message));
        }
        let capacity = orders.len() * (limits.tokens + 8);
        let capacity = reader.backlog.map_or(capacity, |most| capacity.min(most.max(1)));
        let (sender, receiver) = mpsc::channel(capacity);
        let open = orders.len();
        let mut jobs: Vec<(Job, Sink)> = Vec::with_capacity(open);
        for (choice, order) in orders.into_iter().enumerate() {
            let tokenizer = Arc::clone(&lease.tokenizer);
            let metrics = Arc::clone(&reader.metrics);
            let mut tap = Tap::new(choice, sender.clone(), tokenizer, order.wanted, metrics);
            let job = Job { prompt: order.prompt, task: order.task, deadline: reader.deadline };
            jobs.push((job, Box::new(move |event: Event| tap.push(event))));
        }
        let tickets = lease.service.submit_all(jobs).map_err(|r| rejected(&r))?;
        Ok(Self { receiver, open, _tickets: tickets, lease, metrics: Arc::clone(&reader.metrics) })
    }

    /// The next piece of any answer; `None` when all have ended. An answer that was lost because its reader is too slow ends
    /// as cancelled.
    pub(crate) async fn next(&mut self) -> Option<(usize, Piece)> {
        if self.open == 0 {
            return None;
        }
        let Some((choice, piece)) = self.receiver.recv().await else {
            self.open = 0;
            self.metrics.slow_readers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Some((
                0,
                Piece::End {
                    end: End::Cancelled,
                    usage: Usage::default(),
                    thought: 0,
                    drafts: DraftUse::default(),
                },
            ));
        };
        if matches!(piece, Piece::End { .. }) {
            self.open -= 1;
        }
        Some((choice, piece))
    }
}

/// What a client is told of a job that was not taken.
fn rejected(rejected: &Rejected) -> ApiError {
    match rejected {
        Rejected::QueueFull { retry_after, .. } => ApiError::queue_full(retry_after.as_secs()),
        Rejected::ShuttingDown => ApiError::unavailable("shutting_down", "The server is shutting down.", 5),
        Rejected::Invalid(error) => ApiError::body(format!("{error}.")),
        _ => ApiError::internal(),
    }
}
