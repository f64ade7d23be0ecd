//! Which jobs that wait begin.

use std::time::Instant;

use hf2q_plan::PAGE;

use super::active::Active;
use super::{Running, Scheduler};
use crate::job::Finish;

impl Scheduler {
    /// Gives sequences to jobs that wait, in their order, as long as there are places and pages for their prompts. Where the
    /// next one does not fit, those behind it wait as well: it would never get room otherwise.
    pub(super) fn admit(&mut self, now: Instant) {
        while self.running.len() < self.limits.running {
            let next = self.queue.iter().position(|job| !self.waits_for_prefix(job));
            let Some(at) = next.filter(|&at| self.has_room(&self.queue[at])) else { return };
            let Some(job) = self.queue.remove(at) else { return };
            self.begin(job, now);
        }
    }

    fn begin(&mut self, mut job: Active, now: Instant) {
        let started = if job.wants_all() {
            self.engine.add_sequence().map(|sequence| (sequence, 0))
        } else {
            self.engine.add_sequence_with_prefix(&job.history)
        };
        let (sequence, held) = match started {
            Ok(started) => started,
            Err(error) => {
                self.counts.failed += 1;
                return job.fail(error.into());
            }
        };
        if !job.has_started() {
            self.counts.prompt_tokens += job.history.len() as u64;
            self.counts.cached_tokens += held as u64;
        }
        let go_on = job.start(held, now);
        let at = self.running.partition_point(|r| r.job.id < job.id);
        self.running.insert(at, Running { job, sequence, held });
        if !go_on {
            self.end(at, Ok(Finish::Cancelled));
        }
    }

    /// Whether an older job computes what this one begins with: it then waits until it can use that. It waits for older ones
    /// alone, of which there are ever fewer.
    fn waits_for_prefix(&self, job: &Active) -> bool {
        if job.wants_all() {
            return false;
        }
        let cache = self.engine.cache();
        // The last token's logits are not kept.
        let tokens = &job.history[..job.history.len() - 1];
        let mut there = None;
        let mut older = self.running.iter().filter(|r| r.job.id < job.id && r.held < r.job.prompt().len());
        older.any(|r| {
            let prompt = r.job.prompt();
            let common = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            let needed = if cache.ends_anywhere() {
                common.next_multiple_of(PAGE).min(prompt.len())
            } else if common + 1 >= prompt.len() {
                prompt.len()
            } else {
                0
            };
            r.held < needed && common >= PAGE + *there.get_or_insert_with(|| cache.prefix(&job.history).0)
        })
    }

    /// Whether there are pages for what the job has, those that run have, and some more tokens of each. A job that is alone is
    /// given what there is.
    fn has_room(&self, job: &Active) -> bool {
        if self.running.is_empty() {
            return true;
        }
        let cache = self.engine.cache();
        let pages = |g, job: &Active| cache.pages_of(g, (job.history.len() + PAGE).min(self.limits.tokens));
        let shared = if job.wants_all() { vec![0; cache.groups()] } else { cache.prefix(&job.history).1 };
        shared.into_iter().enumerate().all(|(g, shared)| {
            let lacks = |r: &Running| pages(g, &r.job).saturating_sub(self.engine.pages_held(r.sequence, g));
            let promised: usize = self.running.iter().map(lacks).sum();
            pages(g, job).saturating_sub(shared) + promised <= cache.room(g)
        })
    }
}
