//! The thread that owns an engine, and the handle by which others reach it.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::job::{Job, Sink};
use crate::scheduler::{JobId, JobLimits, Rejected, Scheduler, SchedulerOptions, SchedulerStats};

/// A handle of a thread that computes jobs. No call waits for a step. The thread ends when it is shut down or when the last
/// handle and the last ticket are gone.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

struct Shared {
    limits: JobLimits,
}

/// A job that was given to a service. Dropping it cancels the job.
pub struct Ticket {
    id: JobId,
    _shared: Arc<Shared>,
}

impl Ticket {
    /// The job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Ends the job within one step. Its last event still comes.
    pub fn cancel(&self) {}

    /// Lets the job go on without a ticket.
    pub fn detach(self) {}
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// As [`Scheduler::new`]; the system gives no thread.
    pub fn start(engine: Engine, options: SchedulerOptions) -> Result<Self, EngineError> {
        let scheduler = Scheduler::new(engine, options)?;
        Ok(Self { shared: Arc::new(Shared { limits: scheduler.limits() }) })
    }

    /// The largest jobs it takes.
    pub fn limits(&self) -> JobLimits {
        self.shared.limits
    }

    /// Gives a job to the thread.
    ///
    /// # Errors
    /// Too many jobs wait, the job can never be computed, or the service is shutting down.
    pub fn submit(&self, job: Job, sink: Sink) -> Result<Ticket, Rejected> {
        drop((job, sink));
        Err(Rejected::ShuttingDown)
    }

    /// Gives several jobs to the thread, all or none: the answers to one prompt (with different [`crate::Answer::draws`]),
    /// which is then computed once.
    ///
    /// # Errors
    /// As [`Service::submit`], for any of them.
    pub fn submit_all(&self, jobs: Vec<(Job, Sink)>) -> Result<Vec<Ticket>, Rejected> {
        drop(jobs);
        Err(Rejected::ShuttingDown)
    }

    /// As of the end of the last step, but for jobs that are about to be looked at.
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats::default()
    }

    /// Takes no more jobs; lets those that are there end until `deadline` and cancels the others then. Returns when the
    /// thread has ended, its engine closed. A second call may have an earlier deadline.
    pub fn shutdown(&self, deadline: Instant) {
        let _ = deadline;
    }
}
