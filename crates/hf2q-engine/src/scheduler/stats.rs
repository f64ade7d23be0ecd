//! What a scheduler has done, for those who watch it.

use super::drafts::DraftStats;
use crate::stats::CacheStats;

/// Counts since a scheduler was made, and the jobs and pages of now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Jobs that wait for their first row, or to go on after they were preempted.
    pub waiting: usize,
    /// Jobs under way.
    pub running: usize,
    /// Those of them whose prompt is not computed yet.
    pub prompts: usize,
    /// Jobs that were taken.
    pub submitted: u64,
    /// Jobs that were not, because too many waited.
    pub rejected: u64,
    /// Jobs that ended by themselves: by a stop token, a limit or a constraint.
    pub finished: u64,
    /// Jobs that were cancelled or reached their deadline.
    pub cancelled: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// How often a job had to make room for older ones.
    pub preemptions: u64,
    /// Steps.
    pub steps: u64,
    /// Rows of prompts that were computed, those computed again among them.
    pub prompt_rows: u64,
    /// Rows that continued answers.
    pub answer_rows: u64,
    /// Tokens of prompts of jobs that started.
    pub prompt_tokens: u64,
    /// Those of them that the caches held.
    pub cached_tokens: u64,
    /// Tokens that were given to sinks.
    pub answer_tokens: u64,
    /// Steps that gave a job tokens, those of each job counted: it has [`SchedulerStats::answer_tokens`] by this many a step.
    pub answer_steps: u64,
    /// Rows of steps.
    pub step_rows: Histogram,
    /// Seconds of steps, draws included.
    pub step_seconds: Histogram,
    /// Drafts.
    pub drafts: DraftStats,
    /// Pages.
    pub cache: CacheStats,
}

/// Upper bounds of [`SchedulerStats::step_rows`].
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Upper bounds of [`SchedulerStats::step_seconds`].
const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl SchedulerStats {
    pub(super) fn new() -> Self {
        let (step_rows, step_seconds) = (Histogram::new(ROWS), Histogram::new(SECONDS));
        Self { step_rows, step_seconds, ..Self::default() }
    }
}

/// How often values lay below each of some bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bounds, included, ascending.
    pub bounds: &'static [f64],
    /// One more than bounds: values above the bound before and up to this one; the last has no bound.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Without values.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Adds a value.
    pub fn record(&mut self, value: f64) {
        let at = self.bounds.partition_point(|&b| b < value);
        self.counts.resize(self.bounds.len() + 1, 0);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
