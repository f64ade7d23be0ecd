//! Many sequences on a cache that is too small for all: each has its limit, and what does not fit is said.

use hf2q_engine::{
    Answer, Budget, CacheOptions, EngineError, EngineOptions, Event, Finish, Job, LogitRows, Sampler,
    Sampling, Scheduler, SchedulerOptions, Task, WindowPolicy,
};
use hf2q_plan::PAGE;

use crate::support::{Log, answer, engine, scheduler, tokens, windowed};

const CONTEXT: usize = 2048;
const SLOTS: usize = 10;
const PROMPT: usize = 300;

fn options(budget: Budget) -> EngineOptions {
    let cache = CacheOptions { budget, windows: WindowPolicy::Keep };
    EngineOptions { context: CONTEXT, sequences: SLOTS, rows: 512, logit_rows: 1, cache }
}

#[test]
fn every_slot_has_the_whole_context_unless_a_budget_says_otherwise() {
    let mut engine = engine(&windowed(), options(Budget::Sequences));
    for salt in 0..SLOTS {
        let id = engine.add_sequence().unwrap();
        engine.extend(id, &tokens(PROMPT, salt as u32), LogitRows::None, |_| true).unwrap();
        let (held, wanted, context) = (PROMPT, CONTEXT - PROMPT + 1, CONTEXT);
        let error = engine.extend(id, &tokens(wanted, 1), LogitRows::None, |_| true).unwrap_err();
        let expected = EngineError::ContextFull { held, wanted, context };
        assert_eq!(error.to_string(), expected.to_string());
    }
}

#[test]
fn a_cache_that_is_full_refuses_and_goes_on_when_a_sequence_ends() {
    let mut engine = engine(&windowed(), options(Budget::Pages(CONTEXT / PAGE)));
    let mut ids = Vec::new();
    let refused = loop {
        let id = engine.add_sequence().unwrap();
        let text = tokens(PROMPT, ids.len() as u32);
        match engine.extend(id, &text, LogitRows::None, |_| true) {
            Ok(()) => ids.push(id),
            Err(error) => break (id, error),
        }
    };
    assert_eq!(ids.len(), CONTEXT / PAGE / PROMPT.div_ceil(PAGE));
    let full = |error: &EngineError| matches!(error, EngineError::OutOfPages { pages, .. } if *pages == CONTEXT / PAGE);
    assert!(full(&refused.1), "{}", refused.1);
    // It stays refused, and nothing of the others is lost by asking.
    let again = engine.extend(refused.0, &tokens(PROMPT, 99), LogitRows::None, |_| true).unwrap_err();
    assert!(full(&again), "{again}");
    assert!(ids.iter().all(|&id| engine.len(id).unwrap() == PROMPT));
    engine.remove_sequence(ids[0]).unwrap();
    let held = engine.len(refused.0).unwrap();
    engine.extend(refused.0, &tokens(PROMPT - held, 99), LogitRows::None, |_| true).unwrap();
}

#[test]
fn an_answer_ends_at_the_limit_of_its_slot() {
    let context = PROMPT + 20;
    let engine = engine(&windowed(), EngineOptions { context, ..options(Budget::Sequences) });
    let mut scheduler = scheduler(engine);
    for salt in 0..SLOTS {
        let prompt = tokens(PROMPT, salt as u32);
        let (drawn, finish) = answer(&mut scheduler, &prompt, Sampling::default(), (&[], None));
        assert_eq!((finish, drawn.len()), (Finish::Length, context - PROMPT + 1));
    }
}

#[test]
fn jobs_on_a_cache_that_holds_few_of_them_all_end_at_their_limit() {
    let limited =
        |max_tokens| Answer { max_tokens, ..Answer::new(Sampler::new(Sampling::default()).unwrap()) };
    let pages = 8;
    let engine = engine(&windowed(), EngineOptions { logit_rows: SLOTS, ..options(Budget::Pages(pages)) });
    let mut scheduler = Scheduler::new(engine, SchedulerOptions { queue: 64, busy_rows: 512 }).unwrap();
    // What a job can get is said: not a share of the context, and no more than there is.
    assert_eq!((scheduler.limits().tokens, scheduler.limits().running), (pages * PAGE, SLOTS));
    let mut logs = Vec::new();
    for salt in 0..SLOTS {
        logs.push(Log::default());
        let max_tokens = (salt > 0).then_some(5);
        let task = Task::Answer(Box::new(limited(max_tokens)));
        let job = Job { prompt: tokens(PROMPT, salt as u32), task, deadline: None };
        scheduler.submit(job, logs[salt].sink()).unwrap();
    }
    let mut steps = 0;
    while scheduler.step() {
        steps += 1;
        assert!(steps < 1000, "jobs without end");
    }
    for (log, drawn) in
        logs.iter().zip(std::iter::once(pages * PAGE - PROMPT + 1).chain(std::iter::repeat(5)))
    {
        assert_eq!((log.finish(), log.tokens().len()), (Some(Finish::Length), drawn));
        assert!(matches!(log.events()[0], Event::Started { prompt_tokens: PROMPT, .. }));
    }
}
