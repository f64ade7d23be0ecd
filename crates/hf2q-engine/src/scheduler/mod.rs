//! Many jobs on one engine.
//!
//! A step has room for so many rows. Jobs that have one token to compute, which are the answers under way, get their row
//! first; the prompts [share](share::divide) the rest. Pages go to the oldest jobs first: where one lacks a page, the
//! youngest job loses all of its own and waits, to be computed again later from what it had drawn. So the oldest job always
//! goes on, and every job becomes the oldest.

mod active;
mod admit;
mod drafts;
mod hidden;
mod options;
mod plan;
mod share;
mod stats;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::draft::DraftTree;
use crate::engine::{Engine, SequenceId, Work};
use crate::error::EngineError;
use crate::job::{Finish, Job, Sink};
use crate::options::EngineOptions;
use active::{Active, Computed};
use drafts::{Clock, Drafts, Kept};
use hidden::Hidden;
use plan::Share;

pub use drafts::{DraftStats, Drafting};
pub use options::{JobLimits, Rejected, SchedulerOptions};
pub use stats::{Histogram, SchedulerStats};

/// Names a job of one scheduler. Numbers ascend, and none is given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// A job that has a sequence.
struct Running {
    job: Active,
    sequence: SequenceId,
    /// Tokens of the job's history that the sequence holds.
    held: usize,
}

impl Running {
    /// Tokens that are still to be computed; at least one.
    fn left(&self) -> usize {
        self.job.history.len() - self.held
    }
}

/// Computes many jobs on one engine, step by step. It waits for nothing: whoever owns it calls [`Scheduler::step`].
pub struct Scheduler {
    engine: Engine,
    options: SchedulerOptions,
    limits: JobLimits,
    /// Ascending by id. Those that were preempted are among them.
    queue: VecDeque<Active>,
    /// Ascending by id.
    running: Vec<Running>,
    next: u64,
    counts: SchedulerStats,
    drafts: Option<Drafts>,
    /// Running mean of the seconds for which jobs run.
    job_seconds: f64,
}

impl Scheduler {
    /// Takes an engine without sequences.
    ///
    /// # Errors
    /// `busy_rows` or `queue` is 0, or `busy_rows` is more than the engine's rows.
    pub fn new(engine: Engine, options: SchedulerOptions) -> Result<Self, EngineError> {
        let limits = JobLimits::new(&engine, options)?;
        let (queue, running) = (VecDeque::new(), Vec::new());
        let counts = SchedulerStats::new();
        Ok(Self { engine, options, limits, queue, running, next: 0, counts, drafts: None, job_seconds: 1.0 })
    }

    /// Computes drafts along with answers, where a step has room for them. What jobs get does not depend on that, only when.
    #[must_use]
    pub fn with_drafts(self, drafting: Drafting) -> Self {
        Self { drafts: Some(Drafts::new(drafting)), ..self }
    }

    /// What the engine was opened with.
    pub fn engine_options(&self) -> EngineOptions {
        self.engine.options()
    }

    /// The largest jobs it takes.
    pub fn limits(&self) -> JobLimits {
        self.limits
    }

    /// Puts a job at the end of the queue.
    ///
    /// # Errors
    /// The queue is full, or the job can never be computed.
    pub fn submit(&mut self, job: Job, sink: Sink) -> Result<JobId, Rejected> {
        self.limits.check(&job)?;
        let (waiting, max) = (self.waiting(), self.limits.queue);
        if waiting >= max {
            self.counts.rejected += 1;
            return Err(Rejected::QueueFull { waiting, max, retry_after: self.retry_after() });
        }
        let id = JobId(self.next);
        self.enqueue(id, job, sink);
        Ok(id)
    }

    /// Puts a job that was checked at the end of the queue; `id` is above all others.
    pub(crate) fn enqueue(&mut self, id: JobId, job: Job, sink: Sink) {
        self.next = id.0 + 1;
        self.counts.submitted += 1;
        self.queue.push_back(Active::new(id, job, sink, (self.limits.tokens, Instant::now())));
    }

    /// Ends a job: it gets no further rows, and [`Finish::Cancelled`] is its last event. Jobs that have ended are not an error.
    pub fn cancel(&mut self, id: JobId) {
        self.end_where(|job| job.id == id, Finish::Cancelled);
    }

    /// Ends all jobs.
    pub fn cancel_all(&mut self) {
        self.end_where(|_| true, Finish::Cancelled);
    }

    /// Whether there is no job.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    /// Computes one step for the jobs that are under way, and begins those that wait where there is room. `false`: there was
    /// nothing to do.
    pub fn step(&mut self) -> bool {
        let shares = self.prepare();
        self.compute(&shares);
        !shares.is_empty() || !self.is_idle()
    }

    /// Ends jobs whose deadline has passed, begins others, and says what the step is to compute.
    pub(crate) fn prepare(&mut self) -> Vec<Share> {
        let now = Instant::now();
        self.end_where(|job| job.deadline.is_some_and(|deadline| deadline <= now), Finish::Deadline);
        self.admit(now);
        self.plan()
    }

    /// Computes what was prepared.
    pub(crate) fn compute(&mut self, shares: &[Share]) {
        if shares.is_empty() {
            return;
        }
        let answers = shares.iter().all(|s| s.rows == 1 && self.running[s.at].left() == 1);
        let asked = Instant::now();
        let trees = self.draft(shares);
        let began = Instant::now();
        let rows = self.run(shares, &trees, &Clock { began, drafting: began - asked, answers });
        let took = began.elapsed();
        self.counts.steps += 1;
        self.counts.step_rows.record(rows as f64);
        self.counts.step_seconds.record(took.as_secs_f64());
    }

    /// Counts since it was made, and the jobs and pages of now.
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            waiting: self.queue.len(),
            running: self.running.len(),
            prompts: self.running.iter().filter(|r| r.held < r.job.prompt().len()).count(),
            drafts: self.drafts.as_ref().map(Drafts::stats).unwrap_or_default(),
            cache: self.engine.cache_stats(),
            ..self.counts.clone()
        }
    }

    /// Jobs that have had no row yet.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.iter().filter(|job| !job.has_started()).count()
    }

    /// When a job is likely to have ended, so that one that waits can start.
    pub(crate) fn retry_after(&self) -> Duration {
        let seconds = self.job_seconds / self.limits.running as f64;
        Duration::from_secs(seconds.ceil().clamp(1.0, 60.0) as u64)
    }

    /// Fails the jobs that run and starts with empty caches, whatever state a panic has left. Jobs that wait can go on: what
    /// is kept of them lies here.
    pub(crate) fn fail_running(&mut self, error: EngineError) {
        let error = Arc::new(error);
        let running = std::mem::take(&mut self.running);
        self.counts.failed += running.len() as u64;
        self.engine.reset();
        if let Some(drafts) = &mut self.drafts {
            running.iter().for_each(|r| drafts.forget(r.job.id));
        }
        running.into_iter().for_each(|r| r.job.fail(Arc::clone(&error)));
    }

    /// Computes a step and gives its results to the jobs; returns how many rows it had.
    fn run(&mut self, shares: &[Share], trees: &[DraftTree], clock: &Clock) -> usize {
        let mut hidden = Hidden::default();
        let running = &self.running;
        let embeds = shares.iter().any(|s| running[s.at].job.embeds());
        let work: Vec<Work<'_>> =
            shares.iter().zip(trees).map(|(s, tree)| s.work(&running[s.at]).with_tree(tree)).collect();
        let wanted: Vec<usize> = work.iter().map(|w| w.logits.count(w.tokens.len())).collect();
        let observer = embeds.then_some(&mut hidden as &mut dyn hf2q_plan::Observer);
        let drafted = trees.iter().map(DraftTree::len).sum::<usize>();
        let computed = shares.iter().map(|s| s.rows).sum::<usize>() + drafted;
        let vocabulary = self.engine.vocabulary();
        let logits = match self.engine.step(&work, observer) {
            Ok(logits) => logits,
            // The step without drafts is smaller, and what a job asked for does not depend on them.
            Err(error) if drafted > 0 => return self.run_plain((shares, trees), &error, clock.drafting),
            Err(error) => {
                self.fail(shares, error);
                return computed;
            }
        };
        let rows = wanted.iter().sum::<usize>() + drafted;
        let mut results = Results { logits, hidden: &hidden.values, rows, at: 0, vocabulary };
        let mut walks = Vec::new();
        for ((share, wanted), tree) in shares.iter().zip(wanted).zip(trees) {
            let r = &mut self.running[share.at];
            let before = r.job.answer_tokens();
            walks.push(walk(r, (share.rows, wanted), tree, &mut results));
            let tokens = r.job.answer_tokens() - before;
            if tokens > 0 {
                r.job.count_step();
                self.counts.answer_steps += 1;
            }
            self.counts.answer_tokens += tokens as u64;
        }
        let features = self.features();
        self.keep(shares, trees, &mut walks, features);
        self.count_time(shares, trees, (&walks, clock));
        for (share, walk) in shares.iter().zip(walks).rev() {
            if let Some(end) = walk.end.transpose() {
                self.end(share.at, end);
            }
        }
        computed
    }

    /// A step with drafts, which took so long to make, has failed, and nothing of it was stored: it is computed without.
    fn run_plain(
        &mut self,
        (shares, trees): (&[Share], &[DraftTree]),
        error: &EngineError,
        drafting: Duration,
    ) -> usize {
        let drafted = shares.iter().zip(trees).filter(|(_, tree)| !tree.is_empty());
        self.give_up(drafted.map(|(share, _)| share.at), true);
        self.drafts.iter_mut().for_each(|drafts| drafts.failed(error));
        let clock = Clock { began: Instant::now(), drafting, answers: false };
        self.run(shares, &vec![DraftTree::new(); shares.len()], &clock)
    }

    /// What the drafter wants to see of the rows of the last step.
    fn features(&self) -> Result<Vec<Vec<f32>>, EngineError> {
        (0..self.drafts.as_ref().map_or(0, Drafts::taps)).map(|i| self.engine.output_of_rows(i)).collect()
    }

    /// What was computed and stays becomes part of the sequences.
    fn keep(
        &mut self,
        shares: &[Share],
        trees: &[DraftTree],
        walks: &mut [Walk],
        features: Result<Vec<Vec<f32>>, EngineError>,
    ) {
        let mut kept = Vec::new();
        for ((share, tree), walk) in shares.iter().zip(trees).zip(walks) {
            let from = self.running[share.at].held;
            self.settle(share);
            if !tree.is_empty() {
                self.learn(share.at, tree, (&walk.path, matches!(walk.end, Ok(None))));
                match self.engine.accept(self.running[share.at].sequence, &walk.path) {
                    Ok(()) => self.running[share.at].held += walk.path.len(),
                    // What was drawn stays drawn; its rows are computed again.
                    Err(error) => {
                        walk.path.clear();
                        self.drafts.iter_mut().for_each(|drafts| drafts.tell(&error));
                    }
                }
            }
            let rows = (0..share.rows).chain(walk.path.iter().map(|n| share.rows + n)).collect();
            let (step_rows, drafted) = (share.rows + tree.len(), !tree.is_empty());
            kept.push(Kept { at: share.at, from, step_rows, rows, drafted });
        }
        self.show(&kept, features);
    }

    /// Counts the rows that a job has got, and keeps the end of its prompt for others.
    fn settle(&mut self, share: &Share) {
        let r = &mut self.running[share.at];
        let prompt = r.job.prompt().len();
        let was = r.held;
        r.held += share.rows;
        let of_prompt = r.held.min(prompt).saturating_sub(was);
        let again = share.rows - of_prompt;
        let (prompt_rows, answer_rows) = if share.rows > 1 { (share.rows, 0) } else { (of_prompt, again) };
        self.counts.prompt_rows += prompt_rows as u64;
        self.counts.answer_rows += answer_rows as u64;
        if was < prompt && r.held >= prompt {
            // Only a sequence that does not exist cannot be remembered, and this one was just computed.
            let _ = self.engine.remember(r.sequence);
        }
    }

    /// A step has failed; nothing of it was stored.
    fn fail(&mut self, shares: &[Share], error: EngineError) {
        let error = Arc::new(error);
        let failed: Vec<usize> = shares.iter().map(|s| s.at).collect();
        for at in failed.into_iter().rev() {
            self.counts.failed += 1;
            self.remove(at).fail(Arc::clone(&error));
        }
    }

    /// Ends a job that runs.
    fn end(&mut self, at: usize, end: Result<Finish, EngineError>) {
        let job = self.remove(at);
        match end {
            Ok(reason) => self.close(job, reason),
            Err(error) => {
                self.counts.failed += 1;
                job.fail(Arc::new(error));
            }
        }
    }

    fn end_where(&mut self, chosen: impl Fn(&Active) -> bool, reason: Finish) {
        for at in (0..self.running.len()).rev() {
            if chosen(&self.running[at].job) {
                self.end(at, Ok(reason));
            }
        }
        for at in (0..self.queue.len()).rev() {
            if chosen(&self.queue[at])
                && let Some(job) = self.queue.remove(at)
            {
                self.close(job, reason);
            }
        }
    }

    fn close(&mut self, job: Active, reason: Finish) {
        match reason {
            Finish::Cancelled | Finish::Deadline => self.counts.cancelled += 1,
            Finish::Stop(_) | Finish::Length | Finish::Complete => self.counts.finished += 1,
        }
        let (ran, saved) = job.finish(reason);
        self.drafts.iter_mut().zip(saved).for_each(|(drafts, saved)| drafts.count_saved(saved));
        self.job_seconds += (ran.as_secs_f64() - self.job_seconds) / 8.0;
    }

    /// Takes a job's sequence away; what it holds is kept as a prefix.
    fn remove(&mut self, at: usize) -> Active {
        let Running { job, sequence, .. } = self.running.remove(at);
        let _ = self.engine.remove_sequence(sequence);
        if let Some(drafts) = &mut self.drafts {
            drafts.forget(job.id);
        }
        job
    }
}

/// What a step has computed, job after job.
struct Results<'a> {
    /// `[rows, vocabulary]`.
    logits: &'a [f32],
    /// `[rows, width]`, or nothing.
    hidden: &'a [f32],
    rows: usize,
    /// The next job's first row.
    at: usize,
    vocabulary: usize,
}

impl<'a> Results<'a> {
    /// The next `rows` rows: logits and hidden states.
    fn take(&mut self, rows: usize) -> (&'a [f32], &'a [f32]) {
        let range = self.at..self.at + rows;
        self.at = range.end;
        let part = |values: &'a [f32]| {
            let width = values.len().checked_div(self.rows).unwrap_or(0);
            &values[range.start * width..range.end * width]
        };
        (part(self.logits), part(self.hidden))
    }
}

/// What became of one job's rows.
struct Walk {
    /// Nodes of the draft that were drawn, each of which continues the one before.
    path: Vec<usize>,
    end: Result<Option<Finish>, EngineError>,
}

/// Draws from the logits of a job's last row, and goes on from node to node of its draft as long as they are what is drawn.
fn walk(
    r: &mut Running,
    (rows, wanted): (usize, usize),
    tree: &DraftTree,
    results: &mut Results<'_>,
) -> Walk {
    let (logits, hidden) = results.take(wanted);
    let (drafted, _) = results.take(tree.len());
    let vocabulary = results.vocabulary;
    let mut end = r.job.advance(&Computed { from: r.held, count: rows, logits, hidden, vocabulary });
    let mut path: Vec<usize> = Vec::new();
    while matches!(end, Ok(None)) {
        let last = r.job.history.last().copied().unwrap_or_default();
        let Some(node) = tree.child(path.last().copied(), last) else { break };
        path.push(node);
        end = r.job.advance_drafted(&drafted[node * vocabulary..][..vocabulary]);
    }
    Walk { path, end }
}
