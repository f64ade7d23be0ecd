//! Which rows the next step has.

use super::share::{Want, divide};
use super::{Running, Scheduler};
use crate::engine::Work;
use crate::error::EngineError;
use crate::job::Finish;

/// Rows for one of the jobs that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Index of the job.
    pub(super) at: usize,
    /// At least one.
    pub(super) rows: usize,
}

impl Share {
    pub(super) fn work<'a>(&self, r: &'a Running) -> Work<'a> {
        let to = r.held + self.rows;
        Work::new(r.sequence, &r.job.history[r.held..to], r.job.logits(to))
    }
}

impl Scheduler {
    /// Rows for as many jobs as there is room for, in the order of their age. Empty only if no job runs.
    pub(super) fn plan(&mut self) -> Vec<Share> {
        loop {
            let rows = self.wanted_rows();
            let shares = self.fit(rows);
            if !shares.is_empty() || self.running.is_empty() {
                return shares;
            }
            // All pages are the oldest job's, and it needs another one: what was checked when it came forbids that.
            let r = &self.running[0];
            let end =
                if r.held < r.job.prompt().len() { Err(self.out_of_pages()) } else { Ok(Finish::Length) };
            self.end(0, end);
        }
    }

    /// Rows for each job that runs, pages not considered.
    fn wanted_rows(&self) -> Vec<usize> {
        let sizes = self.engine.options();
        let answers = self.running.iter().filter(|r| r.left() == 1).count();
        let busy = self.options.busy_rows.max(2 * self.limits.running).min(sizes.rows);
        let rows = if answers > 0 { busy } else { sizes.rows };
        // Each job has one row of logits; the others are for those that want all.
        let mut spare = sizes.logit_rows - self.running.len();
        let mut want = |r: &Running| {
            let all = r.job.wants_all();
            let most = if all { 1 + spare } else { usize::MAX };
            if all {
                spare -= spare.min(r.left() - 1);
            }
            Want { left: r.left(), most }
        };
        let wants: Vec<Want> = self.running.iter().filter(|r| r.left() > 1).map(&mut want).collect();
        let mut shares = divide(rows - answers, &wants).into_iter();
        let share = |r: &Running| if r.left() == 1 { 1 } else { shares.next().unwrap_or(0) };
        self.running.iter().map(share).collect()
    }

    /// Cuts the wanted rows to those that there are pages for. The oldest jobs come first, and where one of them would get no
    /// row at all, the youngest jobs make room.
    fn fit(&mut self, rows: Vec<usize>) -> Vec<Share> {
        let mut shares = Vec::new();
        let mut taken = vec![0; self.engine.cache().groups()];
        let mut at = 0;
        while at < self.running.len() {
            let fitting = self.fitting(at, rows[at], &taken);
            if fitting == 0 && rows[at] > 0 && at + 1 < self.running.len() {
                self.preempt_youngest();
                continue;
            }
            if fitting > 0 {
                shares.push(Share { at, rows: fitting });
                let sequence = self.running[at].sequence;
                for (g, taken) in taken.iter_mut().enumerate() {
                    *taken += self.engine.pages_needed(sequence, g, fitting);
                }
            }
            at += 1;
        }
        shares
    }

    /// How many of `rows` a job has pages for, where the jobs before it need `taken`.
    fn fitting(&self, at: usize, rows: usize, taken: &[usize]) -> usize {
        let sequence = self.running[at].sequence;
        let fits = |rows: usize| {
            taken.iter().enumerate().all(|(g, taken)| {
                self.engine.pages_needed(sequence, g, rows) + taken <= self.engine.cache().room(g)
            })
        };
        let (mut most, mut too_many) = (0, rows + 1);
        while too_many - most > 1 {
            // The whole is what fits most often.
            let middle = if too_many > rows { rows } else { most + (too_many - most) / 2 };
            if fits(middle) { most = middle } else { too_many = middle }
        }
        most
    }

    fn preempt_youngest(&mut self) {
        let Some(youngest) = self.running.len().checked_sub(1) else { return };
        let job = self.remove(youngest);
        let at = self.queue.partition_point(|waiting| waiting.id < job.id);
        self.queue.insert(at, job);
        self.counts.preemptions += 1;
    }

    fn out_of_pages(&self) -> EngineError {
        let groups = self.engine.cache_stats().groups;
        let full = groups.into_iter().min_by_key(|g| g.free + g.cached).unwrap_or_default();
        EngineError::OutOfPages { group: full.name, pages: full.pages }
    }
}
