//! Many jobs on one engine: each gets what it would get alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hf2q_engine::{
    Answer, Budget, CacheOptions, Constraint, ConstraintError, EngineError, EngineOptions, Event, Finish,
    Job, JobId, Pooling, Rejected, Sampler, Sampling, Scheduler, SchedulerOptions, Task, TokenSet,
    WindowPolicy,
};
use hf2q_model::{Model, toy};
use hf2q_plan::{KvFormat, PAGE, Step};
use hf2q_reference::ReferenceBackend;
use proptest::prelude::*;

use crate::support::{Log, SIZES, Watched, engine, engine_on, tokens, windowed};

pub(crate) const OPTIONS: SchedulerOptions = SchedulerOptions { queue: 100, busy_rows: 16 };

/// What a random job wants.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) prompt: Vec<u32>,
    pub(crate) kind: Kind,
    pub(crate) max_tokens: usize,
    /// Before which step it comes.
    pub(crate) comes: usize,
    /// Before which step it is cancelled.
    pub(crate) cancelled: Option<usize>,
    /// After how many tokens its sink has enough.
    pub(crate) enough: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Greedy,
    Warm { seed: u64, draws: u64 },
    Constrained,
    Probabilities,
    Embed(Pooling),
}

impl Plan {
    pub(crate) fn job(&self) -> Job {
        let warm = |seed| Sampling { temperature: 30.0, seed, ..Sampling::default() };
        let answer = |sampling| Answer {
            max_tokens: Some(self.max_tokens),
            ..Answer::new(Sampler::new(sampling).unwrap())
        };
        let task = match self.kind {
            Kind::Greedy => Task::Answer(Box::new(answer(Sampling::default()))),
            Kind::Warm { seed, draws } => Task::Answer(Box::new(Answer { draws, ..answer(warm(seed)) })),
            Kind::Constrained => {
                let constraint = Some(Box::new(Rising::default()) as Box<dyn Constraint>);
                Task::Answer(Box::new(Answer { constraint, ..answer(warm(1)) }))
            }
            Kind::Probabilities => {
                let (logprobs, prompt_logprobs) = (Some(2), Some(1));
                Task::Answer(Box::new(Answer { logprobs, prompt_logprobs, ..answer(Sampling::default()) }))
            }
            Kind::Embed(pooling) => Task::Embed(pooling),
        };
        Job { prompt: self.prompt.clone(), task, deadline: None }
    }
}

/// Allows ascending ids alone; complete after six tokens.
#[derive(Default)]
struct Rising {
    set: Option<TokenSet>,
    drawn: usize,
}

impl Constraint for Rising {
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError> {
        let all = || {
            let mut set = TokenSet::new(150);
            (0..100).for_each(|id| set.insert(id));
            set
        };
        Ok(Some(&*self.set.get_or_insert_with(all)))
    }

    fn push(&mut self, token: u32) -> Result<(), ConstraintError> {
        let set = self.set.as_mut().unwrap();
        (0..=token.min(90)).for_each(|id| set.remove(id));
        self.drawn += 1;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.drawn == 6
    }
}

/// What came out of a job, so that it can be compared: everything but times and cached tokens.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) tokens: Vec<u32>,
    pub(crate) bits: Vec<u32>,
    pub(crate) finish: Option<Finish>,
}

pub(crate) fn outcome(log: &Log) -> Outcome {
    let mut out = Outcome { finish: log.finish(), ..Outcome::default() };
    for event in log.events() {
        match event {
            Event::Prompt(all) => out.bits.extend(all.iter().flat_map(|p| [p.logprob.to_bits(), p.top[0].0])),
            Event::Token { id, logprobs } => {
                out.tokens.push(id);
                out.bits.extend(logprobs.iter().flat_map(|p| p.top.iter().map(|t| t.1.to_bits())));
            }
            Event::Embedding(vector) => out.bits.extend(vector.iter().map(|x| x.to_bits())),
            Event::Started { .. } | Event::Finished { .. } | Event::Failed(_) => {}
        }
    }
    out
}

/// Events come in their order, the last one last; jobs that ran say so first.
pub(crate) fn check_protocol(log: &Log) {
    let events = log.events();
    let last = |e: &Event| matches!(e, Event::Finished { .. } | Event::Failed(_));
    assert_eq!(events.iter().filter(|e| last(e)).count(), 1, "{events:?}");
    assert!(last(events.last().unwrap()));
    let started = events.iter().position(|e| matches!(e, Event::Started { .. }));
    assert!(started == Some(0) || events.len() == 1, "{events:?}");
    if let Some(Event::Finished { usage, .. }) = events.last() {
        assert_eq!(usage.answer_tokens, log.tokens().len());
        assert_eq!(usage.non_finite, 0);
    }
}

fn alone(setup: &Setup, plan: &Plan) -> Outcome {
    let options = EngineOptions { sequences: 1, ..SIZES };
    let mut scheduler = Scheduler::new(setup.engine(options), OPTIONS).unwrap();
    let log = Log::default();
    scheduler.submit(plan.job(), log.sink()).unwrap();
    while scheduler.step() {}
    outcome(&log)
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    packed: bool,
    options: EngineOptions,
    busy_rows: usize,
}

impl Setup {
    fn engine(&self, options: EngineOptions) -> hf2q_engine::Engine {
        let (model, kv) = if self.packed { (packed(), KvFormat::Tq4) } else { (windowed(), KvFormat::F16) };
        engine_on(&ReferenceBackend, (&model, kv), options)
    }
}

/// A toy whose heads are wide enough for packed formats, so that it has recent positions.
fn packed() -> Model {
    let mut config = toy::configs().into_iter().find(|(name, _)| *name == "llama").unwrap().1;
    config.layers.iter_mut().for_each(|l| (l.head_dim, l.rope.dims) = (64, 64));
    toy::build(config, 3)
}

fn run(setup: &Setup, plans: &[Plan]) -> (Vec<Log>, hf2q_engine::SchedulerStats) {
    let options = SchedulerOptions { busy_rows: setup.busy_rows, ..OPTIONS };
    let mut scheduler = Scheduler::new(setup.engine(setup.options), options).unwrap();
    let logs: Vec<Log> = plans.iter().map(|_| Log::default()).collect();
    let mut ids: BTreeMap<usize, JobId> = BTreeMap::new();
    let mut at = 0;
    loop {
        for (i, plan) in plans.iter().enumerate().filter(|(_, p)| p.comes == at) {
            let mut left = plan.enough.unwrap_or(usize::MAX);
            let sink = logs[i].sink_until(move |event| {
                left -= usize::from(matches!(event, Event::Token { .. }));
                left > 0
            });
            ids.insert(i, scheduler.submit(plan.job(), sink).unwrap());
        }
        for (i, _) in plans.iter().enumerate().filter(|(_, p)| p.cancelled == Some(at)) {
            ids.get(&i).into_iter().for_each(|&id| scheduler.cancel(id));
        }
        let busy = scheduler.step();
        at += 1;
        if !busy && plans.iter().all(|p| p.comes < at) {
            break;
        }
        assert!(at < 10_000, "the jobs do not end");
    }
    (logs, scheduler.stats())
}

/// Jobs of any kind; a `crowd` begins with short prompts and draws many tokens, so that it outgrows a small cache.
fn plans(crowd: bool) -> impl Strategy<Value = Vec<Plan>> {
    let kind = prop_oneof![
        3 => Just(Kind::Greedy),
        4 => (0..3_u64, 0..3_u64).prop_map(|(seed, draws)| Kind::Warm { seed, draws }),
        1 => Just(Kind::Constrained),
        1 => Just(Kind::Probabilities),
        1 => prop_oneof![Just(Kind::Embed(Pooling::Mean)), Just(Kind::Embed(Pooling::Last))],
    ];
    // Prompts that are beginnings of two texts, some with an end of their own.
    let length = if crowd { 1..30_usize } else { 1..150 };
    let prompt = (0..2_u32, length, 0..20_usize, 0..3_u32).prop_map(|(text, n, own, salt)| {
        let mut prompt = tokens(n, text);
        prompt.extend(tokens(own.min(180 - n), 7 + salt));
        prompt
    });
    let max_tokens = if crowd { 90..150_usize } else { 0..70 };
    let rarely = if crowd { 9 } else { 3 };
    let rare = move |n: usize| prop_oneof![rarely => Just(None), 1 => (1..n).prop_map(Some)];
    let plan = (prompt, kind, max_tokens, 0..12_usize, rare(20), rare(10)).prop_map(
        |(prompt, kind, max_tokens, comes, cancelled, enough)| Plan {
            prompt,
            kind,
            max_tokens,
            comes,
            cancelled,
            enough,
        },
    );
    proptest::collection::vec(plan, if crowd { 3..5_usize } else { 2..8 })
}

fn setups(crowd: bool) -> impl Strategy<Value = Setup> {
    let windows =
        prop_oneof![Just(WindowPolicy::Keep), (0..3_usize).prop_map(|ends| WindowPolicy::Drop { ends })];
    // Four pages hold the longest job alone.
    let pages = if crowd { 4..6_usize } else { 4..9 };
    let whole = if crowd { 0 } else { 1 };
    let budget = prop_oneof![2 => pages.prop_map(Budget::Pages), whole => Just(Budget::Sequences)];
    let sequences = if crowd { 3..6_usize } else { 1..6 };
    (any::<bool>(), sequences, 0..40_usize, 0..8_usize, (budget, windows), 1..48_usize).prop_map(
        |(packed, sequences, rows, logits, (budget, windows), busy_rows)| {
            let rows = 2 * sequences + rows;
            let cache = CacheOptions { budget, windows };
            let logit_rows = (sequences + logits).min(rows);
            let options = EngineOptions { context: 200, sequences, rows, logit_rows, cache };
            Setup { packed, options, busy_rows: busy_rows.min(rows) }
        },
    )
}

/// Every job has got what it would have got alone, or as much of it as it wanted.
fn check(setup: &Setup, plans: &[Plan]) -> u64 {
    let (logs, stats) = run(setup, plans);
    for (plan, log) in plans.iter().zip(&logs) {
        check_protocol(log);
        let (got, expected) = (outcome(log), alone(setup, plan));
        if got.finish == Some(Finish::Cancelled) {
            assert!(plan.cancelled.is_some() || plan.enough.is_some());
            assert!(expected.tokens.starts_with(&got.tokens), "{plan:?}");
            assert!(expected.bits.starts_with(&got.bits), "{plan:?}");
        } else {
            assert_eq!(got, expected, "{plan:?}");
        }
    }
    assert_eq!((stats.waiting, stats.running, stats.failed), (0, 0, 0));
    assert!(stats.cache.groups.iter().all(|g| g.in_use == 0 && g.free + g.cached == g.pages));
    assert_eq!(stats.finished + stats.cancelled, plans.len() as u64);
    stats.preemptions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_gets_what_it_would_get_alone((setup, plans) in (setups(false), plans(false))) {
        check(&setup, &plans);
    }

    #[test]
    fn a_job_that_is_preempted_gets_what_it_would_get_alone((setup, plans) in (setups(true), plans(true))) {
        check(&setup, &plans);
    }
}

fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Job {
    let answer =
        Answer { max_tokens: Some(max_tokens), ..Answer::new(Sampler::new(Sampling::default()).unwrap()) };
    Job { prompt, task: Task::Answer(Box::new(answer)), deadline: None }
}

fn plan(prompt: Vec<u32>, max_tokens: usize) -> Plan {
    Plan { prompt, kind: Kind::Greedy, max_tokens, comes: 0, cancelled: None, enough: None }
}

fn small(pages: usize) -> Setup {
    let cache = CacheOptions { budget: Budget::Pages(pages), windows: WindowPolicy::Keep };
    let options = EngineOptions { sequences: 3, rows: 48, logit_rows: 3, cache, ..SIZES };
    Setup { packed: false, options, busy_rows: 48 }
}

#[test]
fn jobs_that_outgrow_the_cache_take_turns() {
    // Each holds one page at first and three in the end, of four.
    let plans: Vec<Plan> = (0..3).map(|salt| plan(tokens(40, salt), 120)).collect();
    let setup = small(4);
    let (logs, stats) = run(&setup, &plans);
    assert!(stats.preemptions > 0, "{stats:?}");
    for (log, plan) in logs.iter().zip(&plans) {
        assert_eq!(outcome(log), alone(&setup, plan));
    }
    // The oldest is never the one that makes room.
    let last = logs[0].events().pop().unwrap();
    assert!(matches!(last, Event::Finished { usage, .. } if usage.recomputed_tokens == 0), "{last:?}");
}

#[test]
fn one_job_can_fill_the_whole_cache_and_no_more() {
    for (pages, drawn) in [(2, 2 * PAGE - 40 + 1), (4, 161)] {
        let setup = small(pages);
        let (logs, stats) = run(&setup, &[plan(tokens(40, 1), 1000)]);
        assert_eq!((logs[0].finish(), logs[0].tokens().len()), (Some(Finish::Length), drawn));
        assert_eq!(stats.preemptions, 0);
        let mut scheduler = Scheduler::new(setup.engine(setup.options), OPTIONS).unwrap();
        let limit = scheduler.limits().tokens;
        assert_eq!(limit, (pages * PAGE).min(200));
        let refused = scheduler.submit(greedy(tokens(limit + 1, 1), 1), Log::default().sink());
        let error = refused.unwrap_err();
        let full = matches!(error, Rejected::Invalid(EngineError::ContextFull { wanted, context, .. }) if wanted == limit + 1 && context == limit);
        assert!(full, "{error}");
    }
}

#[test]
fn several_answers_to_one_prompt_compute_it_once() {
    let options = EngineOptions { sequences: 4, rows: 64, logit_rows: 4, ..SIZES };
    let mut scheduler = Scheduler::new(engine(&windowed(), options), OPTIONS).unwrap();
    let prompt = tokens(130, 1);
    let logs: Vec<Log> = (0..4).map(|_| Log::default()).collect();
    for (draws, log) in (0..).zip(&logs) {
        let plan = Plan { kind: Kind::Warm { seed: 3, draws }, ..plan(prompt.clone(), 5) };
        scheduler.submit(plan.job(), log.sink()).unwrap();
    }
    while scheduler.step() {}
    let stats = scheduler.stats();
    assert_eq!(stats.prompt_rows, 130 + 3);
    assert_eq!((stats.prompt_tokens, stats.cached_tokens), (4 * 130, 3 * 129));
    let answers: Vec<Vec<u32>> = logs.iter().map(Log::tokens).collect();
    assert!(answers[1..].iter().all(|a| *a != answers[0]), "draws are keyed by the choice: {answers:?}");
}

#[test]
fn a_prompt_that_begins_like_one_under_way_waits_for_it() {
    let options = EngineOptions {
        cache: CacheOptions { windows: WindowPolicy::Keep, ..CacheOptions::default() },
        ..SIZES
    };
    let mut scheduler = Scheduler::new(engine(&windowed(), options), OPTIONS).unwrap();
    let shared = tokens(140, 1);
    for own in [3, 9] {
        let prompt = [&shared[..], &tokens(30, own)].concat();
        scheduler.submit(greedy(prompt, 2), Log::default().sink()).unwrap();
    }
    while scheduler.step() {}
    // Of the second, what lies behind the last whole page in common.
    assert_eq!(scheduler.stats().prompt_rows, 170 + 170 - 2 * PAGE as u64);
}

/// Rows of each step by sequence.
fn watched(options: EngineOptions, busy_rows: usize) -> (Scheduler, Arc<Mutex<Vec<Vec<usize>>>>) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let watch = move |step: &Step| {
        let tables = step.rows.iter().map(|r| r.sequence).max().unwrap() + 1;
        let of = |s| step.rows.iter().filter(|r| r.sequence == s).count();
        seen.lock().unwrap().push((0..tables).map(of).collect());
        Ok(())
    };
    let engine = engine_on(&Watched(Arc::new(watch)), (&windowed(), KvFormat::F16), options);
    (Scheduler::new(engine, SchedulerOptions { busy_rows, ..OPTIONS }).unwrap(), steps)
}

#[test]
fn answers_go_on_in_every_step_while_prompts_share_the_rest() {
    let options = EngineOptions { sequences: 4, rows: 40, logit_rows: 4, ..SIZES };
    let (mut scheduler, steps) = watched(options, 20);
    let submit = |scheduler: &mut Scheduler, n, salt, max| {
        let log = Log::default();
        scheduler.submit(greedy(tokens(n, salt), max), log.sink()).unwrap();
        log
    };
    let first = submit(&mut scheduler, 10, 1, 100);
    scheduler.step();
    submit(&mut scheduler, 150, 2, 1);
    submit(&mut scheduler, 120, 3, 1);
    submit(&mut scheduler, 12, 4, 1);
    (0..4).for_each(|_| assert!(scheduler.step()));
    // One for the answer; of 19 the oldest prompt gets 10, the shortest up to 9 before the one between.
    assert_eq!(
        steps.lock().unwrap()[..5],
        [vec![10], vec![1, 10, 9], vec![1, 10, 6, 3], vec![1, 10, 9], vec![1, 10, 9]]
    );
    assert_eq!(first.tokens().len(), 5);
}

#[test]
fn a_long_prompt_is_done_in_time_however_many_short_ones_come() {
    let options = EngineOptions { sequences: 4, rows: 16, logit_rows: 4, ..SIZES };
    let (mut scheduler, _) = watched(options, 16);
    let long = Log::default();
    scheduler.submit(greedy(tokens(160, 1), 1), long.sink()).unwrap();
    let mut steps = 0;
    while long.finish().is_none() {
        scheduler.submit(greedy(tokens(15, 100 + steps), 1), Log::default().sink()).unwrap();
        scheduler.step();
        steps += 1;
    }
    // At least half of what up to three answers leave of 16 rows, in each step.
    assert!(steps <= 160_u32.div_ceil(13_u32.div_ceil(2)), "{steps}");
}

#[test]
fn a_job_that_is_cancelled_gets_no_more_rows() {
    let (mut scheduler, steps) = watched(SIZES, 48);
    let logs = [(); 2].map(|()| Log::default());
    let ids = [1, 2]
        .map(|salt| scheduler.submit(greedy(tokens(150, salt), 9), logs[salt as usize - 1].sink()).unwrap());
    scheduler.step();
    scheduler.cancel(ids[0]);
    assert_eq!(logs[0].finish(), Some(Finish::Cancelled));
    scheduler.step();
    assert_eq!(*steps.lock().unwrap(), [vec![24, 24], vec![48]]);
    scheduler.cancel(ids[0]);
    scheduler.cancel_all();
    assert!(scheduler.is_idle() && !scheduler.step());
    assert_eq!(scheduler.stats().cancelled, 2);
}

#[test]
fn a_deadline_ends_jobs_that_wait_and_jobs_that_run() {
    let mut scheduler = Scheduler::new(engine(&windowed(), SIZES), OPTIONS).unwrap();
    let (past, later) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
    let logs = [past, later].map(|deadline| {
        let log = Log::default();
        let job = Job { deadline: Some(deadline), ..greedy(tokens(10, 1), 3) };
        scheduler.submit(job, log.sink()).unwrap();
        log
    });
    while scheduler.step() {}
    assert_eq!(logs.map(|l| l.finish()), [Some(Finish::Deadline), Some(Finish::Length)]);
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let options = SchedulerOptions { queue: 2, busy_rows: 16 };
    let mut scheduler = Scheduler::new(engine(&windowed(), SIZES), options).unwrap();
    let mut submit = || scheduler.submit(greedy(tokens(10, 1), 3), Log::default().sink());
    assert!(submit().is_ok() && submit().is_ok());
    match submit() {
        Err(Rejected::QueueFull { waiting: 2, max: 2, retry_after }) => assert!(retry_after.as_secs() >= 1),
        other => panic!("{other:?}"),
    }
    scheduler.step();
    let id = scheduler.submit(greedy(tokens(10, 1), 3), Log::default().sink()).unwrap();
    scheduler.cancel(id);
    assert_eq!((scheduler.stats().rejected, scheduler.stats().submitted), (1, 3));
}

#[test]
fn what_cannot_be_computed_is_refused_by_name() {
    let mut scheduler = Scheduler::new(engine(&windowed(), SIZES), OPTIONS).unwrap();
    for (prompt, part) in [(vec![], "empty"), (vec![1, 9999], "9999"), (tokens(201, 1), "context is full")] {
        let error = scheduler.submit(greedy(prompt, 1), Log::default().sink()).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    for (queue, busy_rows) in [(0, 1), (1, 0), (1, 49)] {
        let options = SchedulerOptions { queue, busy_rows };
        assert!(matches!(Scheduler::new(engine(&windowed(), SIZES), options), Err(EngineError::Size { .. })));
    }
}

/// Allows a set of tokens, always; panics at the second draw.
struct Odd(TokenSet, usize);

impl Constraint for Odd {
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError> {
        self.1 += 1;
        assert!(self.1 < 2, "an odd constraint");
        Ok(Some(&self.0))
    }

    fn push(&mut self, _: u32) -> Result<(), ConstraintError> {
        Ok(())
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[test]
fn a_constraint_that_leaves_nothing_or_panics_fails_its_job_alone() {
    let mut scheduler = Scheduler::new(engine(&windowed(), SIZES), OPTIONS).unwrap();
    let mut some = TokenSet::new(150);
    some.insert(3);
    let logs = [Some(TokenSet::new(150)), Some(some), None].map(|set| {
        let log = Log::default();
        let mut job = greedy(tokens(10, 1), 3);
        if let (Task::Answer(answer), Some(set)) = (&mut job.task, set) {
            answer.constraint = Some(Box::new(Odd(set, 0)));
        }
        scheduler.submit(job, log.sink()).unwrap();
        log
    });
    while scheduler.step() {}
    assert!(logs[0].failure().unwrap().contains("allows no token"));
    assert!(logs[1].failure().unwrap().contains("an odd constraint") && logs[1].tokens() == [3]);
    assert_eq!(logs[2].finish(), Some(Finish::Length));
    // Tokens of jobs that fail in the end count as well.
    assert_eq!(scheduler.stats().answer_tokens, 1 + 3);
    assert!(scheduler.stats().cache.groups.iter().all(|g| g.in_use == 0));
}

/// Panics as it goes.
struct Bad(Odd);

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("a bad destructor");
    }
}

impl Constraint for Bad {
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError> {
        self.0.allowed()
    }

    fn push(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.0.push(token)
    }

    fn is_finished(&self) -> bool {
        true
    }
}

#[test]
fn destructors_that_panic_end_their_job_alone() {
    let mut scheduler = Scheduler::new(engine(&windowed(), SIZES), OPTIONS).unwrap();
    let logs = [(); 3].map(|()| Log::default());
    let bad = || Bad(Odd(TokenSet::new(150), 0));
    let (mut constrained, held) = (greedy(tokens(10, 1), 3), bad());
    if let Task::Answer(answer) = &mut constrained.task {
        answer.constraint = Some(Box::new(bad()));
    }
    let sink = logs[1].sink_until(move |_| held.is_finished());
    scheduler.submit(constrained, logs[0].sink()).unwrap();
    scheduler.submit(greedy(tokens(10, 2), 2), sink).unwrap();
    scheduler.submit(greedy(tokens(10, 3), 3), logs[2].sink()).unwrap();
    while scheduler.step() {}
    let ends = logs.map(|log| log.finish());
    assert_eq!(ends, [Some(Finish::Complete), Some(Finish::Length), Some(Finish::Length)]);
    assert_eq!((scheduler.stats().finished, scheduler.stats().failed), (3, 0));
}
