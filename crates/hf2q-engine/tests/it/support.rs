//! Engines of toy models on the reference backend.

use std::sync::{Arc, Mutex};

use hf2q_engine::{
    Answer, Budget, CacheOptions, Engine, EngineOptions, Event, Finish, Job, LogitRows, Sampler, Sampling,
    Scheduler, SchedulerOptions, SequenceId, Sink, Task, WindowPolicy,
};
use hf2q_gguf::Bytes;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{
    Backend, BackendError, GroupId, KvFormat, Limits, Observer, Passes, Plan, Program, SlotMove, Step,
};
use hf2q_reference::ReferenceBackend;

pub(crate) const SIZES: EngineOptions = EngineOptions {
    context: 200,
    sequences: 3,
    rows: 48,
    logit_rows: 48,
    cache: CacheOptions { budget: Budget::Sequences, windows: WindowPolicy::Drop { ends: 0 } },
};

pub(crate) fn engine(model: &Model, options: EngineOptions) -> Engine {
    engine_on(&ReferenceBackend, (model, KvFormat::F16), options)
}

pub(crate) fn engine_on(
    backend: &dyn Backend,
    (model, kv): (&Model, KvFormat),
    options: EngineOptions,
) -> Engine {
    engine_with(backend, (model, &RecordOptions::uniform(kv)), options)
}

pub(crate) fn engine_with(
    backend: &dyn Backend,
    (model, formats): (&Model, &RecordOptions),
    options: EngineOptions,
) -> Engine {
    let recording = model.record(formats).unwrap();
    let weights = model.weights_for(&recording);
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    Engine::open(backend, plan, weights, options).unwrap()
}

/// The reference; its function is called when a step is computed, before anybody learns of it, and may wait, fail or panic.
pub(crate) struct Watched<F>(pub(crate) Arc<F>);

struct WatchedProgram<F> {
    inner: Box<dyn Program>,
    watch: Arc<F>,
}

impl<F: Fn(&Step) -> Result<(), BackendError> + Send + Sync + 'static> Backend for Watched<F> {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn describe(&self) -> String {
        "shows its steps".to_owned()
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let inner = ReferenceBackend.open(plan, weights, limits)?;
        Ok(Box::new(WatchedProgram { inner, watch: Arc::clone(&self.0) }))
    }
}

impl<F: Fn(&Step) -> Result<(), BackendError> + Send + Sync> Program for WatchedProgram<F> {
    fn run(&mut self, step: &Step, observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        let logits = self.inner.run(step, observer)?;
        (self.watch)(step)?;
        Ok(logits)
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        self.inner.output(index)
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        self.inner.move_slots(group, moves)
    }
}

/// For one or few jobs, each step as large as the engine allows.
pub(crate) fn scheduler(engine: Engine) -> Scheduler {
    let busy_rows = engine.options().rows;
    Scheduler::new(engine, SchedulerOptions { queue: 100, busy_rows }).unwrap()
}

/// Tokens and end of one answer.
pub(crate) fn answer(
    scheduler: &mut Scheduler,
    prompt: &[u32],
    sampling: Sampling,
    (stop, max_tokens): (&[u32], Option<usize>),
) -> (Vec<u32>, Finish) {
    let answer = Answer { stop: stop.to_vec(), max_tokens, ..Answer::new(Sampler::new(sampling).unwrap()) };
    let job = Job { prompt: prompt.to_vec(), task: Task::Answer(Box::new(answer)), deadline: None };
    let log = Log::default();
    scheduler.submit(job, log.sink()).unwrap();
    while scheduler.step() {}
    (log.tokens(), log.finish().unwrap())
}

/// What a job's sink has got.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(crate) fn sink(&self) -> Sink {
        self.sink_until(|_| true)
    }

    /// A sink that ends the job where `go_on` says no.
    pub(crate) fn sink_until(&self, mut go_on: impl FnMut(&Event) -> bool + Send + 'static) -> Sink {
        let events = Arc::clone(&self.0);
        Box::new(move |event| {
            let answer = go_on(&event);
            events.lock().unwrap().push(event);
            answer
        })
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn tokens(&self) -> Vec<u32> {
        let id = |e| if let Event::Token { id, .. } = e { Some(id) } else { None };
        self.events().into_iter().filter_map(id).collect()
    }

    /// All that does not depend on what else was computed.
    pub(crate) fn contents(&self) -> Vec<Event> {
        let timed = |e: &Event| matches!(e, Event::Started { .. } | Event::Finished { .. });
        self.events().into_iter().filter(|e| !timed(e)).collect()
    }

    /// How the job ended; `None` if it has not, or has failed.
    pub(crate) fn finish(&self) -> Option<Finish> {
        match self.events().last() {
            Some(Event::Finished { reason, .. }) => Some(*reason),
            _ => None,
        }
    }

    /// The error it failed with.
    pub(crate) fn failure(&self) -> Option<String> {
        match self.events().last() {
            Some(Event::Failed(error)) => Some(error.to_string()),
            _ => None,
        }
    }
}

/// A toy with a sliding window, so that pages are dropped.
pub(crate) fn windowed() -> Model {
    toy::all(5).into_iter().find(|(name, _)| *name == "gemma3").unwrap().1
}

/// A toy of every kind, its heads wide enough for packed formats.
pub(crate) fn wide() -> Vec<(&'static str, Model)> {
    let mut configs = toy::configs();
    configs.retain(|(name, _)| !matches!(*name, "llama-yarn" | "llama-linear" | "llama3"));
    for layer in configs.iter_mut().flat_map(|(_, config)| &mut config.layers).filter(|l| l.head_dim < 64) {
        (layer.head_dim, layer.rope.dims) = (64, 64);
    }
    configs.into_iter().map(|(name, config)| (name, toy::build(config, 3))).collect()
}

/// SplitMix64 (Steele et al. 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// `n` ids that differ for each `salt`.
pub(crate) fn tokens(n: usize, salt: u32) -> Vec<u32> {
    (0..).take(n).map(|i: u32| (i * 37 + salt * 11 + i * i % 13) % 150).collect()
}

/// All logit rows of a text in a sequence of its own, computed in chunks of `chunk`.
pub(crate) fn logits(engine: &mut Engine, sequence: SequenceId, text: &[u32], chunk: usize) -> Vec<u32> {
    let mut bits = Vec::new();
    for part in text.chunks(chunk) {
        let keep = |row: &[f32]| {
            bits.extend(row.iter().map(|x| x.to_bits()));
            true
        };
        engine.extend(sequence, part, LogitRows::All, keep).unwrap();
    }
    bits
}
