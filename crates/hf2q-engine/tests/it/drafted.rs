//! Answers with drafts are the answers without them, whatever is drafted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{
    Budget, CacheOptions, DraftDepth, DraftRequest, DraftShape, DraftTree, DraftUse, Drafter, Drafting,
    EngineError, EngineOptions, Event, Finish, Job, JobId, ModelDrafter, Pooling, Scheduler,
    SchedulerOptions, Seen, Task, WindowPolicy,
};
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, BackendError, KvFormat, Step};

use crate::scheduler::{Kind, OPTIONS, Outcome, Plan, check_protocol, outcome};
use crate::support::{Log, Random, SIZES, Watched, engine, engine_with, tokens, wide, windowed};

/// What each job's answer is without drafts.
type Truth = Arc<Mutex<HashMap<JobId, Vec<u32>>>>;

/// Drafts what is right, what is nearly right and what is nonsense.
struct Adversary {
    truth: Truth,
    random: Random,
    /// Positions that were seen of each job, those forgotten left out.
    seen: HashMap<JobId, usize>,
}

impl Adversary {
    fn new(truth: &Truth, seed: u64) -> Self {
        Self { truth: Arc::clone(truth), random: Random::new(seed), seen: HashMap::new() }
    }

    fn tree(&mut self, r: &DraftRequest<'_>) -> DraftTree {
        let truth = self.truth.lock().unwrap()[&r.job].clone();
        let right = |level: usize| truth.get(r.history.len() + level).copied().unwrap_or(3);
        let mut tree = DraftTree::new();
        let good = self.random.below(r.depth + 1);
        let more = self.random.below(r.room + 3);
        // The right line among others, before or behind them.
        let mut line = None;
        for level in 0..good {
            if self.random.below(3) == 0 {
                tree.push(self.random.below(170) as u32, line);
            }
            line = Some(tree.push(right(level), line));
        }
        for _ in 0..more {
            let parent = [None, tree.len().checked_sub(1)][self.random.below(2)];
            tree.push(self.random.below(170) as u32, parent);
        }
        tree
    }
}

impl Drafter for Adversary {
    fn name(&self) -> &str {
        "adversary"
    }

    fn branches(&self) -> bool {
        true
    }

    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        for s in seen {
            let truth = self.truth.lock().unwrap()[&s.job].clone();
            assert_eq!(s.tokens, &truth[s.from..s.from + s.tokens.len()]);
            // Nothing is left out, but for what caches held.
            if let Some(&end) = self.seen.get(&s.job) {
                assert_eq!(s.from, end);
            }
            self.seen.insert(s.job, s.from + s.tokens.len());
        }
        Ok(())
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        for r in requests {
            assert!(r.depth > 0 && r.room >= r.depth);
            assert_eq!(self.seen.get(&r.job).copied().unwrap_or(r.history.len() - 1), r.history.len() - 1);
        }
        Ok(requests.iter().map(|r| self.tree(r)).collect())
    }

    fn forget(&mut self, job: JobId) {
        self.seen.remove(&job);
    }
}

fn drafting(drafter: impl Drafter + 'static, depth: usize) -> Drafting {
    let warn = Box::new(|error: &EngineError| panic!("{error}"));
    let (drafter, shape) = (Box::new(drafter), DraftShape::Auto);
    Drafting { drafter, depth: DraftDepth::Fixed(depth), shape, warn }
}

/// A job of any kind, often with stop tokens.
fn plan(random: &mut Random) -> (Plan, Vec<u32>) {
    let kind = match random.below(10) {
        0..3 => Kind::Greedy,
        3..6 => Kind::Warm { seed: random.below(3) as u64, draws: random.below(3) as u64 },
        6 => Kind::Constrained,
        7 | 8 => Kind::Probabilities,
        _ => Kind::Embed([Pooling::Mean, Pooling::Last][random.below(2)]),
    };
    let most = [24, 24, 24, 80][random.below(4)];
    let mut prompt = tokens(1 + random.below(most), random.below(2) as u32);
    prompt.extend(tokens(random.below(4), random.below(50) as u32));
    let stops = (0..random.below(8)).map(|_| random.below(150) as u32).collect();
    let (max_tokens, comes) = (random.below(24), random.below(6));
    let cancelled = (random.below(20) == 0).then(|| 1 + random.below(12));
    let enough = (random.below(12) == 0).then(|| 1 + random.below(9));
    (Plan { prompt, kind, max_tokens, comes, cancelled, enough }, stops)
}

fn job((plan, stops): &(Plan, Vec<u32>)) -> Job {
    let mut job = plan.job();
    if let Task::Answer(answer) = &mut job.task {
        answer.stop.clone_from(stops);
    }
    job
}

fn usage(log: &Log) -> (usize, usize, usize) {
    match log.events().last() {
        Some(Event::Finished { usage, .. }) => {
            assert!(
                usage.accepted_tokens <= usage.drafted_tokens && usage.accepted_tokens <= usage.answer_tokens
            );
            (usage.prompt_tokens, usage.answer_tokens, usage.accepted_tokens)
        }
        other => panic!("{other:?}"),
    }
}

/// Models, formats of caches, sizes.
struct Case<'a> {
    backend: &'a dyn Backend,
    model: &'a Model,
    formats: RecordOptions,
    options: EngineOptions,
    busy_rows: usize,
    depth: usize,
}

impl Case<'_> {
    fn scheduler(&self, options: EngineOptions) -> Scheduler {
        let engine = engine_with(self.backend, (self.model, &self.formats), options);
        Scheduler::new(engine, SchedulerOptions { busy_rows: self.busy_rows, ..OPTIONS }).unwrap()
    }

    /// Each job alone, without drafts.
    fn plain(&self, jobs: &[(Plan, Vec<u32>)]) -> Vec<(Outcome, usize)> {
        let mut scheduler = self.scheduler(EngineOptions { cache: CacheOptions::default(), ..self.options });
        let alone = |planned| {
            let log = Log::default();
            scheduler.submit(job(planned), log.sink()).unwrap();
            while scheduler.step() {}
            (outcome(&log), usage(&log).1)
        };
        jobs.iter().map(alone).collect()
    }

    /// All of them at once, with drafts; returns how many drafted tokens were right.
    fn check(&self, jobs: &[(Plan, Vec<u32>)], seed: u64) -> u64 {
        let expected = self.plain(jobs);
        let truth = Truth::default();
        let shape = [DraftShape::Auto, DraftShape::Tree, DraftShape::Chain][seed as usize % 3];
        let drafts = Drafting { shape, ..drafting(Adversary::new(&truth, seed), self.depth) };
        let mut scheduler = self.scheduler(self.options).with_drafts(drafts);
        let logs: Vec<Log> = jobs.iter().map(|_| Log::default()).collect();
        let mut ids = HashMap::new();
        let mut at = 0;
        loop {
            for (i, (plan, _)) in jobs.iter().enumerate() {
                if plan.comes == at {
                    let mut left = plan.enough.unwrap_or(usize::MAX);
                    let sink = logs[i].sink_until(move |event| {
                        left -= usize::from(matches!(event, Event::Token { .. }));
                        left > 0
                    });
                    let id = scheduler.submit(job(&jobs[i]), sink).unwrap();
                    let text = [&plan.prompt[..], &expected[i].0.tokens].concat();
                    truth.lock().unwrap().insert(id, text);
                    ids.insert(i, id);
                }
                if plan.cancelled == Some(at) {
                    ids.get(&i).into_iter().for_each(|&id| scheduler.cancel(id));
                }
            }
            let busy = scheduler.step();
            at += 1;
            if !busy && jobs.iter().all(|(plan, _)| plan.comes < at) {
                break;
            }
            assert!(at < 10_000, "the jobs do not end");
        }
        for ((planned, log), (expected, drawn)) in jobs.iter().zip(&logs).zip(&expected) {
            compare(planned, log, (expected, *drawn));
        }
        let stats = scheduler.stats();
        assert!(stats.cache.groups.iter().all(|g| g.in_use == 0 && g.free + g.cached == g.pages));
        assert_eq!((stats.failed, stats.drafts.failures), (0, 0));
        let levels: u64 = stats.drafts.levels.iter().map(|level| level.1).sum();
        assert_eq!(levels, stats.drafts.accepted);
        stats.drafts.accepted
    }
}

fn compare((plan, stops): &(Plan, Vec<u32>), log: &Log, (expected, drawn): (&Outcome, usize)) {
    check_protocol(log);
    let got = outcome(log);
    if got.finish == Some(Finish::Cancelled) {
        assert!(plan.cancelled.is_some() || plan.enough.is_some());
        assert!(expected.tokens.starts_with(&got.tokens) && expected.bits.starts_with(&got.bits));
        assert!(plan.enough.is_none_or(|enough| got.tokens.len() <= enough));
    } else {
        assert_eq!(&got, expected, "{plan:?} until {stops:?}");
        assert_eq!(usage(log).1, drawn);
    }
}

fn case<'a>(backend: &'a dyn Backend, toys: &'a [(&'static str, Model)], seed: u64) -> Case<'a> {
    let mut random = Random::new(seed);
    let mut any = |n: usize| random.below(n);
    let mut format = || KvFormat::ALL[any(KvFormat::ALL.len())];
    let (sliding, global, recent) = ((format(), format()), (format(), format()), format());
    let formats = RecordOptions { sliding, global, recent: Some(recent), all_rows: any(2) == 0 };
    let windows = [WindowPolicy::Keep, WindowPolicy::Drop { ends: 1 }][any(2)];
    // Four pages hold the longest job alone.
    let budget = [Budget::Sequences, Budget::Pages(4 + any(4))][any(2)];
    let sequences = 1 + any(6);
    let rows = 2 * sequences + any(40);
    let logit_rows = (sequences + any(30)).min(rows);
    let cache = CacheOptions { budget, windows };
    Case {
        backend,
        model: &toys[any(toys.len())].1,
        formats,
        options: EngineOptions { sequences, rows, logit_rows, cache, ..SIZES },
        busy_rows: 1 + any(rows),
        depth: 1 + any(8),
    }
}

/// Prompts of both kinds of random texts, every sampler, constraints, formats and sizes.
#[test]
fn answers_with_drafts_are_those_without() {
    let toys = wide();
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let (mut jobs, mut accepted) = (0, 0);
    for seed in 0..32 {
        let mut random = Random::new(seed * 31 + 5);
        let planned: Vec<(Plan, Vec<u32>)> = (0..16).map(|_| plan(&mut random)).collect();
        accepted += case(&backend, &toys, seed).check(&planned, seed);
        jobs += planned.len();
    }
    assert!(jobs == 512 && accepted > 500, "{accepted} drafted tokens were right");
}

/// An answer of the toy with a window to a prompt of 30 tokens.
fn warm(stop: Vec<u32>, max_tokens: usize) -> Job {
    let prompt = tokens(30, 1);
    let kind = Kind::Warm { seed: 1, draws: 0 };
    let plan = Plan { prompt, kind, max_tokens, comes: 0, cancelled: None, enough: None };
    job(&(plan, stop))
}

fn small() -> Scheduler {
    Scheduler::new(engine(&windowed(), SIZES), OPTIONS).unwrap()
}

fn run(mut scheduler: Scheduler, job: Job) -> (Log, hf2q_engine::SchedulerStats) {
    let log = Log::default();
    scheduler.submit(job, log.sink()).unwrap();
    while scheduler.step() {}
    (log, scheduler.stats())
}

/// Drafts the truth.
struct Right(Vec<u32>);

impl Drafter for Right {
    fn name(&self) -> &str {
        "right"
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        let rest =
            |r: &DraftRequest<'_>| self.0.iter().skip(r.history.len()).take(r.depth).copied().collect();
        Ok(requests.iter().map(|r| DraftTree::chain(rest(r))).collect())
    }
}

#[test]
fn a_stop_token_inside_an_accepted_run_ends_the_answer_there() {
    let (plain, _) = run(small(), warm(vec![], 12));
    let answer = plain.tokens();
    let stop = answer[3];
    assert!(!answer[..3].contains(&stop), "{answer:?}");
    let right = || drafting(Right([&tokens(30, 1)[..], &answer].concat()), 8);
    // The run holds the stop token at its third place and would cross the limit at the fifth.
    let (log, stats) = run(small().with_drafts(right()), warm(vec![stop], 5));
    assert_eq!((log.finish(), log.tokens()), (Some(Finish::Stop(stop)), answer[..3].to_vec()));
    assert_eq!((usage(&log).1, stats.answer_tokens, stats.steps), (3, 3, 2));
    // A step that draws the stop token and nothing else gives no token.
    let (log, stats) = run(small(), warm(vec![stop], 5));
    let Some(Event::Finished { drafts, .. }) = log.events().pop() else { panic!("{:?}", log.events()) };
    assert_eq!((drafts.steps, stats.answer_steps, stats.answer_tokens, stats.steps), (3, 3, 3, 4));
    // The limit holds in a run that is right beyond it.
    for limit in 0..7 {
        let (log, stats) = run(small().with_drafts(right()), warm(vec![], limit));
        assert_eq!((log.finish(), log.tokens()), (Some(Finish::Length), answer[..limit].to_vec()));
        assert!(stats.drafts.drafted < 5.max(limit as u64) && stats.drafts.accepted <= stats.drafts.drafted);
    }
}

#[test]
fn right_drafts_save_steps_and_are_counted() {
    let (plain, stats) = run(small(), warm(vec![], 41));
    assert_eq!((stats.steps, stats.drafts.drafter.as_str()), (41, ""));
    let text = [&tokens(30, 1)[..], &plain.tokens()].concat();
    let (log, stats) = run(small().with_drafts(drafting(Right(text), 4)), warm(vec![], 41));
    assert_eq!(log.tokens(), plain.tokens());
    // The prompt, then five tokens a step.
    assert_eq!((stats.steps, stats.drafts.drafts, stats.drafts.accepted), (9, 8, 32));
    assert_eq!((stats.drafts.drafter.as_str(), &stats.drafts.levels[..]), ("right", &[(8, 8); 4][..]));
    assert_eq!(usage(&log), (30, 41, 32));
    let Some(Event::Finished { drafts, .. }) = log.events().pop() else { panic!("{:?}", log.events()) };
    // Without steps that have no drafts nothing can be compared.
    assert_eq!(drafts, DraftUse { steps: 9, levels: vec![(8, 8); 4], saved: None });
    assert_eq!((stats.answer_steps, stats.answer_tokens, stats.drafts.saved), (9, 41, 0.0));
}

#[test]
fn a_step_that_fails_with_drafts_is_computed_without() {
    let (plain, _) = run(small(), warm(vec![], 12));
    let text = [&tokens(30, 1)[..], &plain.tokens()].concat();
    let watch = |step: &Step| match step.logit_rows.len() {
        0 | 1 => Ok(()),
        _ => Err(BackendError::Failed { backend: "watched", why: "too many rows".to_owned() }),
    };
    let engine = crate::failures::open(&Watched(Arc::new(watch)), SIZES).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let warn = Box::new(move |error: &EngineError| heard.lock().unwrap().push(error.to_string()));
    let drafting = Drafting { warn, ..drafting(Right(text), 4) };
    let scheduler = Scheduler::new(engine, OPTIONS).unwrap().with_drafts(drafting);
    let (log, stats) = run(scheduler, warm(vec![], 12));
    assert_eq!((log.tokens(), log.finish()), (plain.tokens(), plain.finish()));
    assert_eq!((stats.drafts.failures, stats.drafts.drafts, stats.failed), (1, 0, 0));
    // 30 rows of the prompt and eleven more: what failed was not computed.
    assert_eq!((stats.step_rows.sum, stats.step_rows.count()), (41.0, stats.steps));
    assert!(told.lock().unwrap()[..].iter().all(|why| why.contains("too many rows")), "{told:?}");
}

#[test]
fn what_drafts_save_is_known_where_there_are_steps_without() {
    let (plain, _) = run(small(), warm(vec![], 41));
    let text = [&tokens(30, 1)[..], &plain.tokens()].concat();
    let drafting = Drafting { depth: DraftDepth::Auto, ..drafting(Right(text), 1) };
    let (log, stats) = run(small().with_drafts(drafting), warm(vec![], 41));
    assert_eq!(log.tokens(), plain.tokens());
    let Some(Event::Finished { drafts, .. }) = log.events().pop() else { panic!("{:?}", log.events()) };
    assert!(drafts.saved.is_some_and(f64::is_finite), "{drafts:?}");
    assert_eq!(drafts.saved, Some(stats.drafts.saved));
    assert_eq!((drafts.steps as u64, drafts.levels), (stats.answer_steps, stats.drafts.levels));
}

/// Fails at its third draft in one of several ways.
struct Broken(u32, &'static str);

impl Drafter for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn seen(&mut self, _: &[Seen<'_>]) -> Result<(), EngineError> {
        if self.0 > 2 && self.1 == "seen" { Err(EngineError::EmptyPrompt) } else { Ok(()) }
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        self.0 += 1;
        match self.1 {
            "error" if self.0 > 2 => Err(EngineError::EmptyPrompt),
            "panic" if self.0 > 2 => panic!("a broken drafter"),
            "too few" if self.0 > 2 => Ok(Vec::new()),
            "no tree" if self.0 > 2 => Ok(vec![DraftTree { tokens: vec![1], parents: vec![Some(0)] }]),
            _ => Ok(requests.iter().map(|_| DraftTree::chain(vec![5])).collect()),
        }
    }
}

#[test]
fn a_drafter_that_fails_is_reported_once_and_the_job_goes_on() {
    let (plain, _) = run(small(), warm(vec![], 12));
    for (how, said) in [
        ("error", "empty"),
        ("seen", "empty"),
        ("panic", "a broken drafter"),
        ("too few", "broken) cannot go on: a defect"),
        ("no tree", "broken) cannot go on: a defect"),
    ] {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&messages);
        let warn = Box::new(move |error: &EngineError| told.lock().unwrap().push(error.to_string()));
        let (drafter, shape) = (Box::new(Broken(0, how)), DraftShape::Auto);
        let drafting = Drafting { drafter, depth: DraftDepth::Fixed(2), shape, warn };
        let (log, stats) = run(small().with_drafts(drafting), warm(vec![], 12));
        assert_eq!((log.finish(), log.tokens()), (plain.finish(), plain.tokens()), "{how}");
        let messages = messages.lock().unwrap();
        assert!(messages.len() == 1 && messages[0].contains(said), "{how}: {messages:?}");
        assert_eq!(stats.drafts.failures, 1);
    }
}

#[test]
fn a_drafter_that_always_fails_is_soon_not_asked_any_more() {
    let many = |step: &Step| match step.logit_rows.len() {
        0 | 1 => Ok(()),
        _ => Err(BackendError::Failed { backend: "watched", why: "too many rows".to_owned() }),
    };
    for how in ["error", "seen", "panic", "step", "nothing"] {
        let (asked, counted) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let drafter =
            Counted { asked: Arc::clone(&asked), inner: Broken(if how == "step" { 0 } else { 3 }, how) };
        let told = Arc::clone(&counted);
        let warn = Box::new(move |_: &EngineError| *told.lock().unwrap() += 1);
        let mut scheduler = match how {
            "step" => {
                Scheduler::new(crate::failures::open(&Watched(Arc::new(many)), SIZES).unwrap(), OPTIONS)
                    .unwrap()
            }
            _ => small(),
        }
        .with_drafts(Drafting { warn, ..drafting(drafter, 2) });
        for _ in 0..10 {
            let log = Log::default();
            scheduler.submit(warm(vec![], 6), log.sink()).unwrap();
            while scheduler.step() {}
            assert_eq!((log.finish(), log.tokens().len()), (Some(Finish::Length), 6), "{how}");
        }
        let failures = if how == "nothing" { 0 } else { 8 };
        assert_eq!(
            (scheduler.stats().drafts.failures, *counted.lock().unwrap()),
            (failures, failures),
            "{how}"
        );
        assert!(*asked.lock().unwrap() <= 8 || how == "nothing", "{how}");
    }
}

#[test]
fn failures_between_drafts_that_are_computed_are_not_in_a_row() {
    let warn = Box::new(|_: &EngineError| {});
    let drafter = Sometimes(0);
    let mut scheduler = small().with_drafts(Drafting { warn, ..drafting(drafter, 2) });
    for _ in 0..20 {
        let log = Log::default();
        scheduler.submit(warm(vec![], 6), log.sink()).unwrap();
        while scheduler.step() {}
        assert_eq!((log.finish(), log.tokens().len()), (Some(Finish::Length), 6));
    }
    let stats = scheduler.stats();
    assert!(stats.drafts.failures > 8 && stats.drafts.drafts > 8, "{:?}", stats.drafts);
}

/// Two lines wherever there is room, though it may not be asked for alternatives.
struct Forked(Arc<Mutex<Vec<bool>>>);

impl Drafter for Forked {
    fn name(&self) -> &str {
        "forked"
    }

    fn branches(&self) -> bool {
        true
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        self.0.lock().unwrap().extend(requests.iter().map(|r| r.branches));
        let tree = DraftTree { tokens: vec![5, 6, 7, 8], parents: vec![None, Some(0), None, Some(2)] };
        Ok(vec![tree; requests.len()])
    }
}

#[test]
fn chains_have_no_alternatives_and_trees_have() {
    for (shape, branches) in [(DraftShape::Chain, false), (DraftShape::Tree, true), (DraftShape::Auto, true)]
    {
        let most = Arc::new(Mutex::new((0, 0)));
        let seen = Arc::clone(&most);
        // Of one job no two rows have the same position, unless they are alternatives.
        let watch = move |step: &Step| {
            let mut positions: Vec<u32> = step.rows.iter().map(|row| row.position).collect();
            let drafted = if step.logit_rows.len() > 1 { step.rows.len() - 1 } else { 0 };
            positions.sort_unstable();
            positions.dedup();
            let mut seen = seen.lock().unwrap();
            *seen = (seen.0.max(step.rows.len() - positions.len()), seen.1.max(drafted));
            Ok(())
        };
        let engine = crate::failures::open(&Watched(Arc::new(watch)), SIZES).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let drafting = Drafting { shape, ..drafting(Forked(Arc::clone(&asked)), 2) };
        let scheduler = Scheduler::new(engine, OPTIONS).unwrap().with_drafts(drafting);
        let (log, _) = run(scheduler, warm(vec![], 12));
        assert_eq!(log.finish(), Some(Finish::Length));
        assert!(asked.lock().unwrap().iter().all(|&b| b == branches) && !asked.lock().unwrap().is_empty());
        let expected = if branches { (2, 4) } else { (0, 2) };
        assert_eq!(*most.lock().unwrap(), expected, "{shape:?}");
    }
}

/// Counts what is asked of another one.
struct Counted {
    asked: Arc<Mutex<u64>>,
    inner: Broken,
}

impl Drafter for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        self.inner.seen(seen)
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        *self.asked.lock().unwrap() += 1;
        self.inner.draft(requests)
    }
}

/// Fails each second time.
struct Sometimes(usize);

impl Drafter for Sometimes {
    fn name(&self) -> &str {
        "sometimes"
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        self.0 += 1;
        match self.0 % 2 {
            0 => Err(EngineError::EmptyPrompt),
            _ => Ok(requests.iter().map(|_| DraftTree::chain(vec![5])).collect()),
        }
    }
}

/// A drafter that is a model: the same one is always right, another one is not, and neither changes the answer.
#[test]
fn a_model_drafts_with_the_jobs_own_draws() {
    for (seed, least) in [(5, 20), (6, 0)] {
        let other = hf2q_model::toy::all(seed).into_iter().find(|(name, _)| *name == "gemma3").unwrap().1;
        let jobs = || (0..5).map(|i| (warm(vec![], 30), i)).map(|(job, draws)| keyed(job, draws));
        let (mut plain, sizes) = (small(), EngineOptions { context: 90, ..SIZES });
        let drafter = ModelDrafter::new("toy", engine(&other, sizes));
        let mut drafted = small().with_drafts(drafting(drafter, 5));
        let run = |scheduler: &mut Scheduler| {
            let logs: Vec<Log> = jobs()
                .map(|job| {
                    let log = Log::default();
                    scheduler.submit(job, log.sink()).unwrap();
                    log
                })
                .collect();
            while scheduler.step() {}
            logs.iter().map(|log| (log.finish(), log.tokens())).collect::<Vec<_>>()
        };
        assert_eq!(run(&mut plain), run(&mut drafted));
        let stats = drafted.stats();
        assert_eq!((stats.drafts.failures, stats.drafts.drafter.as_str()), (0, "model toy"));
        assert!(stats.drafts.accepted >= 5 * least, "{:?}", stats.drafts);
        // The same model is wrong nowhere.
        assert!(seed == 6 || stats.drafts.accepted == stats.drafts.drafted, "{:?}", stats.drafts);
    }
}

fn keyed(mut job: Job, key: u64) -> Job {
    if let Task::Answer(answer) = &mut job.task {
        answer.draws = key;
    }
    job
}
