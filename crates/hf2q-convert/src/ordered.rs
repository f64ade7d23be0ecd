//! Pieces of work done by several threads and taken in order, in bounded memory.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Finished pieces that may wait for the one before them, for each thread.
const AHEAD: usize = 4;

/// Does pieces `0..count` on `threads` threads and hands their results to `sink` on this one, in order. A result that
/// `sink` has seen is given to a later piece, which may use its memory again; scratch memory `S` is one for each thread.
///
/// # Errors
/// The first error by order, of a piece or of `sink`; no later piece is handed on.
pub(crate) fn ordered<S: Default, T: Default + Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize, &mut S, &mut T) -> Result<(), E> + Sync,
    mut sink: impl FnMut(usize, &T) -> Result<(), E>,
) -> Result<(), E> {
    let shared = Shared { state: Mutex::default(), changed: Condvar::new(), ahead: threads * AHEAD };
    std::thread::scope(|scope| {
        // However this ends, by an error or a panic, the threads must end too.
        let _stop = Stop { shared: &shared, only_by_panic: false };
        for _ in 0..threads {
            scope.spawn(|| {
                let _stop = Stop { shared: &shared, only_by_panic: true };
                let mut scratch = S::default();
                while let Some((piece, mut result)) = shared.take(count) {
                    let done = work(piece, &mut scratch, &mut result).map(|()| result);
                    shared.lock().finished.insert(piece, done);
                    shared.changed.notify_all();
                }
            });
        }
        for piece in 0..count {
            let Some(result) = shared.wait_for(piece) else { break };
            let result = result?;
            sink(piece, &result)?;
            shared.handed_on(result);
        }
        Ok(())
    })
}

struct Shared<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
    /// Pieces that may be begun before the first unfinished one is handed on.
    ahead: usize,
}

struct State<T, E> {
    begun: usize,
    handed_on: usize,
    finished: HashMap<usize, Result<T, E>>,
    spare: Vec<T>,
    stopped: bool,
}

impl<T, E> Default for State<T, E> {
    fn default() -> Self {
        Self { begun: 0, handed_on: 0, finished: HashMap::new(), spare: Vec::new(), stopped: false }
    }
}

impl<T: Default, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The next piece to work on, once there is room for its result; `None` when there is none.
    fn take(&self, count: usize) -> Option<(usize, T)> {
        let full = |s: &mut State<T, E>| !s.stopped && s.begun < count && s.begun >= s.handed_on + self.ahead;
        let waited = self.changed.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.stopped || state.begun >= count {
            return None;
        }
        state.begun += 1;
        let spare = state.spare.pop().unwrap_or_default();
        Some((state.begun - 1, spare))
    }

    /// The result of a piece; `None` if the thread that worked on it panicked.
    fn wait_for(&self, piece: usize) -> Option<Result<T, E>> {
        let missing = |s: &mut State<T, E>| !s.stopped && !s.finished.contains_key(&piece);
        let waited = self.changed.wait_while(self.lock(), missing);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).finished.remove(&piece)
    }

    fn handed_on(&self, result: T) {
        let mut state = self.lock();
        state.handed_on += 1;
        state.spare.push(result);
        drop(state);
        self.changed.notify_all();
    }
}

/// Ends all threads when dropped.
struct Stop<'a, T: Default, E> {
    shared: &'a Shared<T, E>,
    only_by_panic: bool,
}

impl<T: Default, E> Drop for Stop<'_, T, E> {
    fn drop(&mut self) {
        if !self.only_by_panic || std::thread::panicking() {
            self.shared.lock().stopped = true;
            self.shared.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::ordered;

    fn run(count: usize, threads: usize, fail_at: Option<usize>) -> (Vec<usize>, Result<(), usize>) {
        let mut seen = Vec::new();
        let result = ordered(
            count,
            threads,
            |i, (): &mut (), out: &mut Vec<usize>| {
                out.clear();
                out.push(i * 3);
                if fail_at.is_some_and(|f| i >= f) { Err(i) } else { Ok(()) }
            },
            |i, out| {
                assert_eq!(out, &[i * 3]);
                seen.push(i);
                Ok(())
            },
        );
        (seen, result)
    }

    #[test]
    fn results_come_in_order() {
        for threads in [1, 2, 7] {
            for count in [0, 1, 5, 1000] {
                assert_eq!(run(count, threads, None), ((0..count).collect(), Ok(())));
            }
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        for threads in [1, 3] {
            assert_eq!(run(100, threads, Some(17)), ((0..17).collect(), Err(17)));
        }
    }

    #[test]
    fn an_error_of_the_sink_ends_it() {
        let done = AtomicUsize::new(0);
        let work = |_, (): &mut (), (): &mut ()| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let result = ordered(1_000_000, 3, work, |i, ()| if i == 5 { Err("full") } else { Ok(()) });
        assert_eq!(result, Err("full"));
        assert!(done.load(Ordering::Relaxed) < 100);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_a_thread_is_passed_on() {
        let work = |i, (): &mut (), (): &mut ()| if i == 3 { panic!("piece 3") } else { Ok::<(), ()>(()) };
        let _ = ordered(10, 2, work, |_, ()| Ok(()));
    }
}
