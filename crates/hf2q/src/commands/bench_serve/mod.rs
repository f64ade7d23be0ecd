//! `hf2q bench-serve`: loads any server that speaks OpenAI's protocol.

mod client;
mod output;
mod stats;
mod workload;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::BenchServeArgs;
use crate::{interrupt, terminal};
use client::{Client, Outcome};
use workload::Workload;

/// More threads than this at once are not started: a server that far behind is measured already.
const MOST_WAITING: usize = 4096;

pub(crate) fn run(args: &BenchServeArgs) -> Result<()> {
    interrupt::install_once()?;
    let client = Client::connect(args)?;
    let workload = Workload::new(&args.load);
    warm_up(&client, &workload, args.load.warmup)?;
    let bar = terminal::counting_bar(args.load.requests.get(), "requests");
    let done = |outcome: &Outcome| {
        bar.inc(1);
        if let Err(trouble) = &outcome.answer {
            bar.set_message(terminal::safe(&trouble.to_string()));
        }
    };
    let started = Instant::now();
    let outcomes = match args.load.rate {
        Some(_) => at_rate(&client, &workload, started, &done),
        None => in_turn(&client, &workload, args.load.concurrency.get(), &done),
    };
    bar.finish_and_clear();
    let report = stats::Report::new(&outcomes, started.elapsed(), &args.limits);
    if args.json {
        terminal::print_json(&output::json(args, client.model(), &report))?;
    } else {
        output::print(client.model(), &report)?;
    }
    if interrupt::pressed() {
        bail!("stopped after {} of {} requests", outcomes.len(), args.load.requests);
    }
    if report.answers == 0 {
        bail!("no request was answered");
    }
    Ok(())
}

fn warm_up(client: &Client, workload: &Workload, requests: usize) -> Result<()> {
    for i in 0..requests {
        if interrupt::pressed() {
            bail!("stopped");
        }
        // Other prompts than those that are measured.
        let work = workload.warm_up(i);
        client.ask(&work, Instant::now()).answer?;
    }
    Ok(())
}

/// So many requests at the same time.
fn in_turn(
    client: &Client,
    workload: &Workload,
    concurrency: usize,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..concurrency.min(workload.len()) {
            scope.spawn(|| {
                while let Some(work) = workload.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if interrupt::pressed() {
                        return;
                    }
                    let outcome = client.ask(&work, Instant::now());
                    done(&outcome);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Each request at its moment, whether others are answered or not: what a server makes its clients wait counts.
fn at_rate(
    client: &Client,
    workload: &Workload,
    started: Instant,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    let outcomes = Mutex::new(Vec::new());
    let waiting = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..workload.len() {
            let Some(work) = workload.get(i) else { break };
            let due = started + work.at;
            if !sleep_until(due, &waiting) {
                break;
            }
            waiting.fetch_add(1, Ordering::Relaxed);
            let (outcomes, waiting) = (&outcomes, &waiting);
            scope.spawn(move || {
                let outcome = client.ask(&work, due);
                done(&outcome);
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a moment, and for a thread to be free; false if the user ends the run.
fn sleep_until(due: Instant, waiting: &AtomicUsize) -> bool {
    loop {
        if interrupt::pressed() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        let full = waiting.load(Ordering::Relaxed) >= MOST_WAITING;
        if left.is_zero() && !full {
            return true;
        }
        let nap = if full { Duration::from_millis(1) } else { left.min(Duration::from_millis(50)) };
        thread::sleep(nap);
    }
}
