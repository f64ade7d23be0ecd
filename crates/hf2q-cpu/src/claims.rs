//! Which thread does which tasks of a stage.
//!
//! Every thread begins with a share of its own, whose tasks lie side by side in memory, and takes them in order. Who is
//! done takes tasks from the end of what others have left, so that a thread that the system holds up delays nobody.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is left of the shares of all threads, for all stages of a step; memory is kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    threads: usize,
    /// By stage and thread: the first task that is left in the low half, the end of them in the high half.
    left: Vec<AtomicU64>,
}

fn pack(tasks: Range<usize>) -> u64 {
    let half = |n: usize| u64::from(u32::try_from(n).expect("a stage has fewer than 2^32 tasks"));
    half(tasks.start) | half(tasks.end) << 32
}

fn unpack(tasks: u64) -> Range<usize> {
    (tasks & u64::from(u32::MAX)) as usize..(tasks >> 32) as usize
}

impl Claims {
    /// Forgets all stages.
    pub(crate) fn clear(&mut self, threads: usize) {
        self.threads = threads;
        self.left.clear();
    }

    /// Deals out the tasks of one more stage.
    pub(crate) fn add(&mut self, tasks: usize) {
        let threads = self.threads;
        let share = |thread: usize| tasks * thread / threads..tasks * (thread + 1) / threads;
        self.left.extend((0..threads).map(|thread| AtomicU64::new(pack(share(thread)))));
    }

    /// What is left of a thread's own share of a stage.
    pub(crate) fn own(&self, stage: usize, thread: usize) -> Range<usize> {
        unpack(self.left[stage * self.threads + thread].load(Ordering::Relaxed))
    }

    /// Tasks of a stage for a thread: the nearer half of what is left of its share, or the farther half of another's.
    pub(crate) fn next(&self, stage: usize, thread: usize) -> Option<Range<usize>> {
        let left = &self.left[stage * self.threads..(stage + 1) * self.threads];
        let half = |tasks: &Range<usize>| tasks.len().div_ceil(2);
        let near = |tasks: Range<usize>| {
            (tasks.start..tasks.start + half(&tasks), tasks.start + half(&tasks)..tasks.end)
        };
        let far = |tasks: Range<usize>| {
            (tasks.end - half(&tasks)..tasks.end, tasks.start..tasks.end - half(&tasks))
        };
        let others = (1..self.threads).map(|n| (thread + n) % self.threads);
        take(&left[thread], near).or_else(|| others.into_iter().find_map(|other| take(&left[other], far)))
    }
}

/// Takes a part of some tasks, if there are any: `cut` gives what is taken, which is never nothing, and what is left.
fn take(
    tasks: &AtomicU64,
    cut: impl Fn(Range<usize>) -> (Range<usize>, Range<usize>),
) -> Option<Range<usize>> {
    let mut seen = tasks.load(Ordering::Relaxed);
    loop {
        let all = unpack(seen);
        if all.is_empty() {
            return None;
        }
        let (taken, left) = cut(all);
        match tasks.compare_exchange_weak(seen, pack(left), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(taken),
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_to_their_shares_and_then_help() {
        let mut claims = Claims::default();
        claims.clear(2);
        claims.add(3);
        claims.add(16);
        let next = |thread| claims.next(1, thread);
        assert_eq!([next(0), next(0), next(0)], [Some(0..4), Some(4..6), Some(6..7)]);
        assert_eq!([next(1), next(0), next(0)], [Some(8..12), Some(7..8), Some(14..16)]);
        assert_eq!([next(1), next(0), next(1), next(0)], [Some(12..13), Some(13..14), None, None]);
        assert_eq!(
            [claims.next(0, 1), claims.next(0, 1), claims.next(0, 0)],
            [Some(1..2), Some(2..3), Some(0..1)]
        );
        assert_eq!(claims.next(0, 1), None);
    }

    #[test]
    fn every_task_is_claimed_once() {
        for (tasks, threads) in [(1, 3), (2, 3), (100, 1), (1000, 4)] {
            let mut claims = Claims::default();
            claims.clear(threads);
            claims.add(tasks);
            let mut all: Vec<usize> = std::thread::scope(|scope| {
                let claims = &claims;
                let work = |thread| {
                    move || std::iter::from_fn(|| claims.next(0, thread)).flatten().collect::<Vec<_>>()
                };
                let running: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
                running.into_iter().flat_map(|t| t.join().unwrap()).collect()
            });
            all.sort_unstable();
            assert_eq!(all, (0..tasks).collect::<Vec<_>>());
        }
    }
}
