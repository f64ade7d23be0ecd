//! Waiting: briefly by spinning, then asleep.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// How long a waiter stays awake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Looks with a pause in between: some hundred microseconds, more than a step's parts that one thread does and what
    /// happens between two steps usually take, less than anybody notices.
    spins: u32,
}

impl Patience {
    /// With more threads than processors a spinning thread keeps the one it waits for from running.
    pub(crate) fn for_threads(threads: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { spins: if threads > processors { 0 } else { 4000 } }
    }
}

/// A counter that threads wait on. No wake-up is lost: a sleeper announces itself before its last look, and who
/// advances the counter looks for sleepers afterwards.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    value: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Gate {
    pub(crate) fn value(&self) -> usize {
        self.value.load(Ordering::SeqCst)
    }

    pub(crate) fn advance(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper that has seen the old value holds the lock until it listens.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_all();
        }
    }

    /// Returns the counter once it is no longer `seen`.
    pub(crate) fn wait(&self, seen: usize, patience: Patience) -> usize {
        for _ in 0..patience.spins {
            let value = self.value.load(Ordering::Acquire);
            if value != seen {
                return value;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.value() == seen {
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.value()
    }
}

/// Another thread of the job has panicked: leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Where the threads of a job meet.
#[derive(Debug)]
pub(crate) struct Barrier {
    threads: usize,
    patience: Patience,
    arrived: AtomicUsize,
    gate: Gate,
    broken: AtomicBool,
}

impl Barrier {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            patience: Patience::for_threads(threads),
            arrived: AtomicUsize::new(0),
            gate: Gate::default(),
            broken: AtomicBool::new(false),
        }
    }

    /// Returns when all threads have called it, and what they did before is visible.
    pub(crate) fn wait(&self) -> Result<(), Broken> {
        self.wait_for(|| ())
    }

    /// [`Barrier::wait`] with work for one thread: who comes last does it, while the others wait anyway.
    pub(crate) fn wait_for(&self, work: impl FnOnce()) -> Result<(), Broken> {
        // In this order: a break that comes after the look at the flag changes the value that was seen.
        let seen = self.gate.value();
        self.check()?;
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            work();
            self.gate.advance();
        } else {
            self.gate.wait(seen, self.patience);
        }
        self.check()
    }

    /// Makes every wait fail, until [`Barrier::mend`].
    pub(crate) fn break_up(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.gate.advance();
    }

    /// Ready for the next job; no thread may be waiting.
    pub(crate) fn mend(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), Broken> {
        if self.broken.load(Ordering::SeqCst) { Err(Broken) } else { Ok(()) }
    }
}
