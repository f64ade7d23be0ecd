//! The engine's thread: what comes from other threads, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hf2q_engine::{
    Answer, EngineOptions, Event, Finish, Job, Rejected, Sampler, Sampling, SchedulerOptions, Service, Task,
};
use hf2q_plan::{BackendError, KvFormat, Step};

use crate::support::{Log, SIZES, Watched, engine, engine_on, tokens, windowed};

const OPTIONS: SchedulerOptions = SchedulerOptions { queue: 3, busy_rows: 16 };

fn job(n: usize, salt: u32, max_tokens: usize) -> Job {
    let sampling = Sampling { temperature: 30.0, seed: 5, ..Sampling::default() };
    let answer = Answer { max_tokens: Some(max_tokens), ..Answer::new(Sampler::new(sampling).unwrap()) };
    Job { prompt: tokens(n, salt), task: Task::Answer(Box::new(answer)), deadline: None }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// What a step waits for, and what it then does.
enum Then {
    Compute,
    Fail,
    Panic,
}

/// A service whose steps wait until they are told how to go on, and say when they wait.
fn gated(options: EngineOptions) -> (Service, Sender<Then>, Receiver<usize>) {
    let (tell, told) = channel();
    let (waits, waiting) = channel();
    let (told, waits) = (Mutex::new(told), Mutex::new(waits));
    let watch = move |step: &Step| {
        let _ = waits.lock().unwrap().send(step.rows.len());
        let then = told.lock().unwrap().recv();
        match then {
            // Nobody tells any more: it goes on by itself.
            Ok(Then::Compute) | Err(_) => Ok(()),
            Ok(Then::Fail) => Err(BackendError::Failed { backend: "gated", why: "told to".to_owned() }),
            Ok(Then::Panic) => panic!("told to"),
        }
    };
    let engine = engine_on(&Watched(Arc::new(watch)), (&windowed(), KvFormat::F16), options);
    (Service::start(engine, OPTIONS).unwrap(), tell, waiting)
}

#[test]
fn jobs_of_many_threads_get_what_each_would_get_alone() {
    let service =
        Service::start(engine(&windowed(), SIZES), SchedulerOptions { queue: 100, ..OPTIONS }).unwrap();
    let answer = |salt: u32| {
        let log = Log::default();
        let (done, wait) = channel();
        let last = log.sink_until(move |event| {
            if matches!(event, Event::Finished { .. }) {
                done.send(()).unwrap();
            }
            true
        });
        let ticket = service.submit(job(20 + salt as usize, salt, 12), last).unwrap();
        wait.recv().unwrap();
        drop(ticket);
        log.tokens()
    };
    let alone: Vec<Vec<u32>> = (0..6).map(answer).collect();
    let answer = &answer;
    let together: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).rev().map(|salt| scope.spawn(move || answer(salt))).collect();
        threads.into_iter().rev().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
    service.shutdown(far());
    let stats = service.stats();
    assert_eq!((stats.submitted, stats.finished, stats.answer_tokens), (12, 12, 144));
}

#[test]
fn a_ticket_that_is_dropped_ends_the_job_within_one_step() {
    let (service, tell, waiting) = gated(SIZES);
    let log = Log::default();
    let ticket = service.submit(job(150, 1, 9), log.sink()).unwrap();
    assert_eq!(waiting.recv().unwrap(), 48);
    drop(ticket);
    tell.send(Then::Compute).unwrap();
    // Another job's step is the next one.
    let other = service.submit(job(10, 2, 1), Log::default().sink()).unwrap();
    assert_eq!(waiting.recv().unwrap(), 10);
    assert_eq!((log.finish(), log.tokens().len()), (Some(Finish::Cancelled), 0));
    drop(tell);
    other.detach();
    service.shutdown(far());
    assert_eq!((service.stats().finished, service.stats().cancelled), (1, 1));
}

#[test]
fn more_jobs_than_may_wait_are_rejected_all_or_none() {
    let (service, tell, waiting) = gated(SIZES);
    let log = Log::default();
    let submit = |n: u32| service.submit_all((0..n).map(|i| (job(10, i, 1), log.sink())).collect());
    let running = submit(1).unwrap();
    waiting.recv().unwrap();
    let mut tickets = submit(2).unwrap();
    let refused = submit(2).err().unwrap();
    assert!(matches!(refused, Rejected::QueueFull { waiting: 2, max: 3, .. }), "{refused}");
    tickets.extend(submit(1).unwrap());
    assert!(submit(1).is_err());
    assert_eq!((service.stats().rejected, service.stats().waiting), (3, 3));
    drop(tell);
    tickets.into_iter().chain(running).for_each(hf2q_engine::Ticket::detach);
    service.shutdown(far());
    assert_eq!(log.events().iter().filter(|e| matches!(e, Event::Finished { .. })).count(), 4);
    assert!(matches!(submit(1).err().unwrap(), Rejected::ShuttingDown));
}

#[test]
fn a_shutdown_lets_jobs_end_or_cuts_them() {
    for (deadline, finish) in [(far(), Finish::Length), (Instant::now(), Finish::Cancelled)] {
        let (service, tell, waiting) = gated(SIZES);
        let logs = [(); 5].map(|()| Log::default());
        // Three run, and the others wait.
        let first = service.submit(job(10, 0, 4), logs[0].sink()).unwrap();
        waiting.recv().unwrap();
        let rest: Vec<_> =
            (1..4).map(|i| service.submit(job(10, i, 4), logs[i as usize].sink()).unwrap()).collect();
        let handle = service.clone();
        let thread = std::thread::spawn(move || handle.shutdown(deadline));
        // Until it is seen to have begun.
        while !matches!(service.submit(job(10, 9, 4), logs[4].sink()), Err(Rejected::ShuttingDown)) {
            std::thread::yield_now();
        }
        drop(tell);
        thread.join().unwrap();
        assert!(logs[..4].iter().all(|l| l.finish() == Some(finish)));
        drop((first, rest));
    }
}

/// Takes its time to go, and says when it has gone.
struct Slow(Arc<AtomicBool>);

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(50));
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_shutdown_returns_when_the_engine_is_closed() {
    let closed = Arc::new(AtomicBool::new(false));
    let part = Slow(Arc::clone(&closed));
    let watch = move |_: &Step| {
        let _ = &part;
        Ok(())
    };
    let engine = engine_on(&Watched(Arc::new(watch)), (&windowed(), KvFormat::F16), SIZES);
    let service = Service::start(engine, OPTIONS).unwrap();
    service.shutdown(far());
    assert!(closed.load(Ordering::SeqCst));
}

#[test]
fn a_failure_or_a_panic_fails_jobs_and_not_the_service() {
    let (service, tell, waiting) = gated(SIZES);
    for then in [Then::Fail, Then::Panic] {
        let log = Log::default();
        let ticket = service.submit(job(60, 1, 3), log.sink()).unwrap();
        assert_eq!(waiting.recv().unwrap(), 48);
        let good = Log::default();
        let other = service.submit(job(40, 2, 1), good.sink()).unwrap();
        tell.send(then).unwrap();
        assert_eq!(waiting.recv().unwrap(), 40);
        assert!(log.failure().unwrap().contains("told to"), "{:?}", log.failure());
        tell.send(Then::Compute).unwrap();
        // The ticket is held until the last event has come.
        while good.finish().is_none() {
            std::thread::yield_now();
        }
        drop((ticket, other));
    }
    let log = Log::default();
    let ticket = service.submit(job(30, 1, 2), log.sink()).unwrap();
    drop(tell);
    ticket.detach();
    service.shutdown(far());
    assert_eq!(log.tokens().len(), 2);
    assert_eq!((service.stats().failed, service.stats().finished), (2, 3));
    assert!(service.stats().cache.groups.iter().all(|g| g.in_use == 0));
}

#[test]
fn a_sink_that_panics_ends_its_job_alone() {
    let service = Service::start(engine(&windowed(), SIZES), OPTIONS).unwrap();
    let (bad, good) = (Log::default(), Log::default());
    let sink = bad.sink_until(|event| !matches!(event, Event::Token { .. }) || panic!("a bad sink"));
    let tickets =
        [service.submit(job(10, 1, 5), sink).unwrap(), service.submit(job(10, 2, 5), good.sink()).unwrap()];
    tickets.into_iter().for_each(hf2q_engine::Ticket::detach);
    service.shutdown(far());
    assert_eq!((bad.finish(), good.finish()), (Some(Finish::Cancelled), Some(Finish::Length)));
}

#[test]
fn the_thread_ends_with_its_last_handle() {
    let (gone, wait) = channel::<()>();
    let service = Service::start(engine(&windowed(), SIZES), OPTIONS).unwrap();
    let log = Log::default();
    let sink = log.sink_until(move |_| {
        let _ = &gone;
        true
    });
    service.submit(job(10, 1, 5), sink).unwrap().detach();
    drop(service);
    // The sink is dropped when its job has ended.
    assert!(wait.recv().is_err());
    assert_eq!(log.finish(), Some(Finish::Length));
}
