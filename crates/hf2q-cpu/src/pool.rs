//! Threads that live as long as the backend and run one job at a time together with the caller.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::gate::{Barrier, Broken, Gate, Patience};

/// What all threads run together.
pub(crate) trait Job: Send + Sync {
    /// Called once on every thread, 0 being the caller's. All threads meet at `barrier` equally often.
    fn run(&self, thread: usize, barrier: &Barrier) -> Result<(), Broken>;
}

struct Shared {
    start: Gate,
    finished: Gate,
    running: AtomicUsize,
    barrier: Barrier,
    patience: Patience,
    stop: AtomicBool,
    job: Mutex<Option<Arc<dyn Job>>>,
    failure: Mutex<Option<String>>,
}

/// A fixed number of threads, the caller's included.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn work(&self, job: &dyn Job, thread: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| job.run(thread, &self.barrier)));
        if let Err(panic) = outcome {
            lock(&self.failure).get_or_insert_with(|| message(panic.as_ref()));
            self.barrier.break_up();
        }
    }

    fn serve(&self, thread: usize) {
        let mut seen = 0;
        loop {
            seen = self.start.wait(seen, self.patience);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let job = lock(&self.job).clone();
            if let Some(job) = job {
                self.work(job.as_ref(), thread);
            }
            if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finished.advance();
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a thread panicked".to_owned())
}

impl Pool {
    /// Starts `threads - 1` workers; `threads` is at least 1.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            start: Gate::default(),
            finished: Gate::default(),
            running: AtomicUsize::new(0),
            barrier: Barrier::new(threads),
            patience: Patience::for_threads(threads),
            stop: AtomicBool::new(false),
            job: Mutex::new(None),
            failure: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for thread in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(format!("hf2q-cpu-{thread}"));
            pool.workers.push(builder.spawn(move || shared.serve(thread))?);
        }
        Ok(pool)
    }

    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs a job on all threads; the message of the first panic if there was one. Jobs of several callers take turns.
    pub(crate) fn run(&self, job: Arc<dyn Job>) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let shared = &self.shared;
        let finished = shared.finished.value();
        if !self.workers.is_empty() {
            *lock(&shared.job) = Some(Arc::clone(&job));
            shared.running.store(self.workers.len(), Ordering::SeqCst);
            shared.start.advance();
        }
        shared.work(job.as_ref(), 0);
        if !self.workers.is_empty() {
            shared.finished.wait(finished, shared.patience);
            *lock(&shared.job) = None;
        }
        match lock(&shared.failure).take() {
            Some(why) => {
                shared.barrier.mend();
                Err(why)
            }
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.start.advance();
        for worker in self.workers.drain(..) {
            // A worker's panics are caught and reported by `run`; there is nobody left to tell.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every thread adds to each slot in turn; a barrier that lets one through early shows in the sums it reads.
    struct Rounds {
        slots: Vec<AtomicUsize>,
        wrong: AtomicUsize,
        threads: usize,
    }

    impl Job for Rounds {
        fn run(&self, _thread: usize, barrier: &Barrier) -> Result<(), Broken> {
            for slot in &self.slots {
                slot.fetch_add(1, Ordering::Relaxed);
                barrier.wait()?;
                if slot.load(Ordering::Relaxed) != self.threads {
                    self.wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        }
    }

    #[test]
    fn threads_meet_at_every_barrier() {
        for threads in 1..=4 {
            let pool = Pool::new(threads).unwrap();
            for _ in 0..20 {
                let slots = (0..100).map(|_| AtomicUsize::new(0)).collect();
                let job = Arc::new(Rounds { slots, wrong: AtomicUsize::new(0), threads });
                pool.run(job.clone()).unwrap();
                assert_eq!(job.wrong.load(Ordering::Relaxed), 0);
                assert!(job.slots.iter().all(|s| s.load(Ordering::Relaxed) == threads));
            }
        }
    }

    struct Panics(usize);

    impl Job for Panics {
        fn run(&self, thread: usize, barrier: &Barrier) -> Result<(), Broken> {
            barrier.wait()?;
            assert!(thread != self.0, "thread {thread} gives up");
            barrier.wait()?;
            barrier.wait()
        }
    }

    #[test]
    fn a_panic_is_reported_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for thread in 0..3 {
            let why = pool.run(Arc::new(Panics(thread))).unwrap_err();
            assert_eq!(why, format!("thread {thread} gives up"));
            assert_eq!(pool.run(Arc::new(Panics(99))), Ok(()));
        }
    }

    #[test]
    fn sleeping_workers_are_woken() {
        let pool = Pool::new(2).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(pool.run(Arc::new(Panics(99))), Ok(()));
        }
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(pool.run(Arc::new(Panics(99))), Ok(()));
                    }
                });
            }
        });
    }
}
