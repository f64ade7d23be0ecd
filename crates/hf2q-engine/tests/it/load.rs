//! Sixty-four mixed jobs with fixed seeds on the CPU: the same answers alone, together, in any order, with prefixes and
//! with preemption.

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{
    Answer, Budget, CacheOptions, EngineOptions, Job, Pooling, Sampler, Sampling, Scheduler,
    SchedulerOptions, SchedulerStats, Task, WindowPolicy,
};
use hf2q_model::Model;
use hf2q_plan::KvFormat;

use crate::support::{Log, engine_on, tokens, windowed};

const JOBS: usize = 64;

fn job(i: usize) -> Job {
    // Prompts of four texts, every other one with an end of its own.
    let mut prompt = tokens(10 + i * 7 % 70, i as u32 % 4);
    if i.is_multiple_of(2) {
        prompt.extend(tokens(10, 50 + i as u32));
    }
    let temperature = if i.is_multiple_of(3) { 0.0 } else { 30.0 };
    let sampling = Sampling {
        temperature,
        seed: i as u64 / 2,
        frequency_penalty: if i.is_multiple_of(5) { 0.5 } else { 0.0 },
        ..Sampling::default()
    };
    let answer = Answer {
        draws: i as u64 % 2,
        max_tokens: Some(5 + i * 11 % 150),
        logprobs: (i.is_multiple_of(4)).then_some(3),
        ..Answer::new(Sampler::new(sampling).unwrap())
    };
    let task = if i % 16 == 7 { Task::Embed(Pooling::Mean) } else { Task::Answer(Box::new(answer)) };
    Job { prompt, task, deadline: None }
}

/// What jobs, given in this order, tell their sinks, in the order of their numbers.
fn run(model: &Model, options: EngineOptions, order: &[usize]) -> (Vec<String>, SchedulerStats) {
    let backend = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    let engine = engine_on(&backend, (model, KvFormat::F16), options);
    let mut scheduler = Scheduler::new(engine, SchedulerOptions { queue: JOBS, busy_rows: 32 }).unwrap();
    let logs: Vec<Log> = (0..JOBS).map(|_| Log::default()).collect();
    for &i in order {
        scheduler.submit(job(i), logs[i].sink()).unwrap();
        if options.sequences == 1 {
            while scheduler.step() {}
        }
    }
    while scheduler.step() {}
    // Numbers that are printed alike are alike but for the sign of a zero.
    let told = |log: &Log| format!("{:?} {:?}", log.finish(), log.contents());
    (logs.iter().map(told).collect(), scheduler.stats())
}

#[test]
fn answers_do_not_depend_on_load() {
    let ascending: Vec<usize> = (0..JOBS).collect();
    let mixed: Vec<usize> = (0..JOBS).map(|i| i * 37 % JOBS).collect();
    let options = |sequences, pages, windows| {
        let budget = if pages == 0 { Budget::Sequences } else { Budget::Pages(pages) };
        let cache = CacheOptions { budget, windows };
        EngineOptions { context: 256, sequences, rows: 64, logit_rows: 16, cache }
    };
    let model = windowed();
    let (alone, _) = run(&model, options(1, 0, WindowPolicy::default()), &ascending);
    let (together, stats) = run(&model, options(16, 0, WindowPolicy::Keep), &ascending);
    assert!(together == alone && stats.cached_tokens > 500, "{stats:?}");
    let (others, _) = run(&model, options(5, 0, WindowPolicy::Drop { ends: 2 }), &mixed);
    assert!(others == alone);
    let (crowded, stats) = run(&model, options(16, 9, WindowPolicy::Keep), &mixed);
    assert!(crowded == alone && stats.preemptions > 0, "{stats:?}");
}
