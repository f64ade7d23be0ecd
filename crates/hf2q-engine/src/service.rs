//! The thread that owns an engine, and the handle by which others reach it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::job::{Job, Sink};
use crate::options::EngineOptions;
use crate::scheduler::{Drafting, JobId, JobLimits, Rejected, Scheduler, SchedulerOptions, SchedulerStats};

/// A handle of a thread that computes jobs. No call but [`Service::shutdown`] waits for a step. The thread ends when it is
/// shut down, or when the last handle and the last ticket are gone and the jobs that were left have ended.
#[derive(Clone)]
pub struct Service {
    owner: Arc<Owner>,
}

/// Counts handles and tickets: the thread itself has none.
struct Owner {
    shared: Arc<Shared>,
}

struct Shared {
    limits: JobLimits,
    engine: EngineOptions,
    inbox: Mutex<Inbox>,
    /// Something was put into the inbox.
    news: Condvar,
    /// The thread has ended.
    ended: Condvar,
}

/// What the thread looks at before every step, and what it says after it.
struct Inbox {
    jobs: VecDeque<(JobId, Job, Sink)>,
    cancelled: Vec<JobId>,
    next: u64,
    end: End,
    /// Of the scheduler: jobs that have had no row yet.
    waiting: usize,
    retry_after: Duration,
    rejected: u64,
    stats: SchedulerStats,
}

/// Whether and when the thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not yet.
    Open,
    /// When its jobs have ended.
    Idle,
    /// When its jobs have ended or at this time.
    At(Instant),
    /// It has ended.
    Over,
}

/// A job that was given to a service. Dropping it cancels the job.
pub struct Ticket {
    id: JobId,
    owner: Option<Arc<Owner>>,
}

impl Ticket {
    /// The job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Ends the job within one step. Its last event still comes.
    pub fn cancel(&self) {
        if let Some(owner) = &self.owner {
            owner.shared.inbox().cancelled.push(self.id);
            owner.shared.news.notify_all();
        }
    }

    /// Lets the job go on without a ticket.
    pub fn detach(mut self) {
        self.owner = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut inbox = self.shared.inbox();
        if inbox.end == End::Open {
            inbox.end = End::Idle;
        }
        self.shared.news.notify_all();
    }
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// As [`Scheduler::new`]; the system gives no thread.
    pub fn start(engine: Engine, options: SchedulerOptions) -> Result<Self, EngineError> {
        Self::with_drafts(engine, options, None)
    }

    /// Starts the thread; its jobs get drafts.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn with_drafts(
        engine: Engine,
        options: SchedulerOptions,
        drafting: Option<Drafting>,
    ) -> Result<Self, EngineError> {
        let mut scheduler = Scheduler::new(engine, options)?;
        if let Some(drafting) = drafting {
            scheduler = scheduler.with_drafts(drafting);
        }
        let inbox = Inbox {
            jobs: VecDeque::new(),
            cancelled: Vec::new(),
            next: 0,
            end: End::Open,
            waiting: 0,
            retry_after: scheduler.retry_after(),
            rejected: 0,
            stats: scheduler.stats(),
        };
        let shared = Arc::new(Shared {
            limits: scheduler.limits(),
            engine: scheduler.engine_options(),
            inbox: Mutex::new(inbox),
            news: Condvar::new(),
            ended: Condvar::new(),
        });
        let owner = Arc::new(Owner { shared: Arc::clone(&shared) });
        let thread = std::thread::Builder::new().name("hf2q-engine".to_owned());
        thread.spawn(move || serve(&shared, scheduler)).map_err(EngineError::Thread)?;
        Ok(Self { owner })
    }

    /// The largest jobs it takes.
    pub fn limits(&self) -> JobLimits {
        self.owner.shared.limits
    }

    /// What the engine was opened with.
    pub fn engine_options(&self) -> EngineOptions {
        self.owner.shared.engine
    }

    /// Gives a job to the thread.
    ///
    /// # Errors
    /// Too many jobs wait, the job can never be computed, or the service is shutting down.
    pub fn submit(&self, job: Job, sink: Sink) -> Result<Ticket, Rejected> {
        let mut tickets = self.submit_all(vec![(job, sink)])?;
        Ok(tickets.pop().expect("there is a ticket for every job"))
    }

    /// Gives several jobs to the thread, all or none: the answers to one prompt (with different [`crate::Answer::draws`]),
    /// which is then computed once.
    ///
    /// # Errors
    /// As [`Service::submit`], for any of them.
    pub fn submit_all(&self, jobs: Vec<(Job, Sink)>) -> Result<Vec<Ticket>, Rejected> {
        let shared = &self.owner.shared;
        jobs.iter().try_for_each(|(job, _)| shared.limits.check(job))?;
        let mut inbox = shared.inbox();
        if inbox.end != End::Open {
            return Err(Rejected::ShuttingDown);
        }
        let (waiting, max) = (inbox.waiting + inbox.jobs.len(), shared.limits.queue);
        if waiting + jobs.len() > max {
            inbox.rejected += jobs.len() as u64;
            return Err(Rejected::QueueFull { waiting, max, retry_after: inbox.retry_after });
        }
        let mut tickets = Vec::new();
        for (job, sink) in jobs {
            let id = JobId(inbox.next);
            inbox.next += 1;
            inbox.jobs.push_back((id, job, sink));
            tickets.push(Ticket { id, owner: Some(Arc::clone(&self.owner)) });
        }
        drop(inbox);
        shared.news.notify_all();
        Ok(tickets)
    }

    /// As of the end of the last step, but for jobs that are about to be looked at.
    pub fn stats(&self) -> SchedulerStats {
        let inbox = self.owner.shared.inbox();
        let stats = inbox.stats.clone();
        SchedulerStats { waiting: stats.waiting + inbox.jobs.len(), rejected: inbox.rejected, ..stats }
    }

    /// Takes no more jobs; lets those that are there end until `deadline` and cancels the others then. Returns when the
    /// thread has ended, its engine closed. A second call can make the deadline earlier.
    pub fn shutdown(&self, deadline: Instant) {
        let shared = &self.owner.shared;
        let mut inbox = shared.inbox();
        inbox.end = match inbox.end {
            End::Open | End::Idle => End::At(deadline),
            End::At(other) => End::At(other.min(deadline)),
            End::Over => End::Over,
        };
        shared.news.notify_all();
        while inbox.end != End::Over {
            inbox = shared.ended.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    /// The inbox is never left half changed, so a panic elsewhere does not matter to it.
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came. Waits while there is nothing to do; `false`: the thread is to end.
    fn look(&self, scheduler: &mut Scheduler) -> bool {
        loop {
            self.tell(scheduler);
            let mut inbox = self.inbox();
            for (id, job, sink) in std::mem::take(&mut inbox.jobs) {
                scheduler.enqueue(id, job, sink);
            }
            inbox.waiting = scheduler.waiting();
            let cancelled = std::mem::take(&mut inbox.cancelled);
            let end = inbox.end;
            if !cancelled.is_empty() {
                // Sinks are called, which may ask the service for something.
                drop(inbox);
                cancelled.into_iter().for_each(|id| scheduler.cancel(id));
                continue;
            }
            match end {
                End::Over => return false,
                End::At(deadline) if deadline <= Instant::now() => return false,
                End::At(_) | End::Idle if scheduler.is_idle() => return false,
                _ if !scheduler.is_idle() => return true,
                _ => drop(self.news.wait(inbox)),
            }
        }
    }

    /// Says how things stand.
    fn tell(&self, scheduler: &Scheduler) {
        let stats = scheduler.stats();
        let mut inbox = self.inbox();
        inbox.waiting = scheduler.waiting();
        inbox.retry_after = scheduler.retry_after();
        inbox.stats = stats;
    }

    fn step(&self, scheduler: &mut Scheduler) {
        let shares = scheduler.prepare();
        self.tell(scheduler);
        scheduler.compute(&shares);
    }
}

fn serve(shared: &Shared, scheduler: Scheduler) {
    let _over = Over(shared);
    // Goes before the thread is said to have ended, its engine with it; a parameter would go after.
    let mut scheduler = scheduler;
    while shared.look(&mut scheduler) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| shared.step(&mut scheduler))) {
            scheduler.fail_running(EngineError::panicked(&*panic));
        }
    }
    scheduler.cancel_all();
    shared.tell(&scheduler);
}

/// Says that the thread has ended, however it does.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut inbox = self.0.inbox();
        inbox.end = End::Over;
        inbox.waiting = 0;
        self.0.ended.notify_all();
    }
}
