//! Gemma 4's assistants against what the transformers library drafted with them.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hf2q_arch::{Architecture, Centroids, Config};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::draft::AssistantDrafter;
use hf2q_engine::{
    Answer, CacheOptions, DraftDepth, DraftRequest, DraftShape, DraftTree, Drafter, Drafting, Engine,
    EngineError, EngineOptions, Event, Job, JobId, LogitRows, Sampler, Sampling, Scheduler, SchedulerOptions,
    Seen, Task, Work,
};
use hf2q_model::assistant::Assistant;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat, Passes, Plan};
use hf2q_reference::ReferenceBackend;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::goldens::{converted, root};
use crate::support::Random;

const STEPS: usize = 6;

/// A target and its drafter.
struct Pair {
    target: Engine,
    drafter: AssistantDrafter,
}

fn engine_options(sequences: usize, rows: usize) -> EngineOptions {
    let cache = CacheOptions::default();
    EngineOptions { context: 256, sequences, rows, logit_rows: rows, cache }
}

fn parts(name: &str) -> (Model, Model) {
    let folder = root().join("fixtures/assistant").join(name);
    let target = root().join("fixtures/tiny").join(golden(&folder)["target"].as_str().unwrap());
    let load = |folder: &Path| Model::load(&converted(folder, "f32")).unwrap();
    (load(&folder), load(&target))
}

fn golden(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("goldens.json")).unwrap()).unwrap()
}

impl Pair {
    fn open(name: &str, backend: &dyn Backend, passes: Passes) -> Self {
        let (drafter, model) = parts(name);
        let mut recording = model.record(&RecordOptions::uniform(KvFormat::F32)).unwrap();
        let assistant = Assistant::new(drafter, &model).unwrap();
        let how = (KvFormat::F32, engine_options(16, 32));
        let drafter = AssistantDrafter::open(assistant, &recording, backend, how).unwrap();
        recording.keep(drafter.taps()).unwrap();
        let weights = model.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, passes));
        let target = Engine::open(backend, plan, weights, engine_options(4, 128)).unwrap();
        Self { target, drafter }
    }

    /// What the taps give for tokens that are computed in steps of `chunk`: `[tokens, width]` of each.
    fn features(&mut self, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        let sequence = self.target.add_sequence().unwrap();
        let mut all = vec![Vec::new(); self.drafter.taps().len()];
        for tokens in tokens.chunks(chunk) {
            self.target.step(&[Work::new(sequence, tokens, LogitRows::Last)], None).unwrap();
            for (i, all) in all.iter_mut().enumerate() {
                all.extend(self.target.output_of_rows(i).unwrap());
            }
        }
        self.target.remove_sequence(sequence).unwrap();
        all
    }
}

/// What a drafter is to see: tokens of some positions, with what the taps gave for all.
struct Shown {
    job: JobId,
    first: usize,
    tokens: Vec<u32>,
    features: Vec<Vec<f32>>,
}

impl Shown {
    fn new(pair: &mut Pair, job: u64, case: &Value, chunk: usize) -> Self {
        let mut tokens = ids(case, "ids");
        tokens.pop();
        let first = usize::try_from(case["first"].as_u64().unwrap()).unwrap();
        let features = pair.features(&tokens, chunk);
        Self { job: JobId(job), first, tokens, features }
    }

    /// The rows of positions in `range`.
    fn rows(&self, range: Range<usize>) -> Vec<Vec<f32>> {
        let cut = |values: &Vec<f32>| {
            let width = values.len() / self.tokens.len();
            values[range.start * width..range.end * width].to_vec()
        };
        self.features.iter().map(cut).collect()
    }

    /// Shows all of it, so many rows at a time.
    fn show(&self, drafter: &mut AssistantDrafter, chunk: usize) {
        for from in (self.first..self.tokens.len()).step_by(chunk) {
            let range = from..(from + chunk).min(self.tokens.len());
            let features = self.rows(range.clone());
            let tokens = &self.tokens[range];
            drafter.seen(&[Seen { job: self.job, from, tokens, features: &features }]).unwrap();
        }
    }
}

fn ids(case: &Value, key: &str) -> Vec<u32> {
    case[key].as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn request<'a>(job: u64, history: &'a [u32], sampler: &'a Sampler) -> DraftRequest<'a> {
    DraftRequest { job: JobId(job), history, sampler, draws: 0, room: 8, depth: STEPS, branches: false }
}

/// The largest distance of a logit from the reference's, over their spread; tokens that cannot be drawn have none here.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    let mean = expected.iter().sum::<f32>() / expected.len() as f32;
    let spread = (expected.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / expected.len() as f32).sqrt();
    let off = |(f, e): (&f32, &f32)| if f.is_finite() { (f - e).abs() } else { 0.0 };
    found.iter().zip(expected).map(off).fold(0.0, f32::max) / spread
}

fn drafts_are_those_of_transformers(backend: &dyn Backend, passes: Passes, chunk: usize) {
    let sampler = Sampler::new(Sampling::default()).unwrap();
    for name in ["dense", "unified", "ordered"] {
        let folder = root().join("fixtures/assistant").join(name);
        let bytes = std::fs::read(folder.join("goldens.safetensors")).unwrap();
        let arrays = SafeTensors::deserialize(&bytes).unwrap();
        let mut pair = Pair::open(name, backend, passes);
        let golden = golden(&folder);
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() >= 10);
        for (job, case) in (0..).zip(cases) {
            let history = ids(case, "ids");
            Shown::new(&mut pair, job, case, chunk).show(&mut pair.drafter, chunk);
            let mut logits = Vec::new();
            let requests = [request(job, &history, &sampler)];
            let show = &mut |_, row: &[f32]| logits.extend_from_slice(row);
            let drafts = pair.drafter.draft_shown(&requests, show).unwrap();
            let what = format!("{name}, {} in steps of {chunk}", case["name"]);
            assert_eq!(drafts[0].tokens, ids(case, "tokens"), "{what}");
            let key = format!("{}.logits", case["name"].as_str().unwrap());
            let expected = arrays.tensor(&key).unwrap();
            let (expected, _) = expected.data().as_chunks::<4>();
            let expected: Vec<f32> = expected.iter().map(|&b| f32::from_le_bytes(b)).collect();
            assert_eq!(logits.len(), expected.len(), "{what}");
            let possible = logits.iter().filter(|x| x.is_finite()).count();
            assert_eq!(possible, STEPS * if name == "ordered" { 5 * 16 } else { 384 }, "{what}");
            let off = distance(&logits, &expected);
            assert!(off < 2e-4, "{what}: logits are off by {off}");
            // What was drafted has left nothing: the same again.
            assert_eq!(pair.drafter.draft(&requests).unwrap(), drafts, "{what}");
            pair.drafter.forget(JobId(job));
        }
    }
}

#[test]
fn the_reference_drafts_what_transformers_does() {
    drafts_are_those_of_transformers(&ReferenceBackend, Passes::NONE, 128);
}

#[test]
fn the_cpu_drafts_what_transformers_does() {
    let backend = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    drafts_are_those_of_transformers(&backend, Passes::ALL, 128);
    drafts_are_those_of_transformers(&backend, Passes::ALL, 7);
}

/// Jobs that come and go at different times, are seen in pieces, and draft together.
#[test]
fn jobs_beside_each_other_draft_as_if_they_were_alone() {
    let backend = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    for name in ["dense", "unified", "ordered"] {
        let mut pair = Pair::open(name, &backend, Passes::ALL);
        let golden = golden(&root().join("fixtures/assistant").join(name));
        let cases = golden["cases"].as_array().unwrap();
        let shown: Vec<Shown> =
            (0..).zip(cases).map(|(job, case)| Shown::new(&mut pair, job, case, 128)).collect();
        let mut random = Random::new(name, 1);
        let mut at: Vec<usize> = shown.iter().map(|s| s.first).collect();
        while at.iter().zip(&shown).any(|(&at, s)| at < s.tokens.len()) {
            let mut parts = Vec::new();
            for (at, s) in at.iter_mut().zip(&shown) {
                let from = *at;
                *at = (from + random.below(20)).min(s.tokens.len());
                parts.push((s, from, s.rows(from..*at)));
            }
            let seen = |(s, from, features): &(&Shown, usize, Vec<Vec<f32>>)| {
                let rows = features[0].len() * s.tokens.len() / s.features[0].len();
                (s.job, *from, s.tokens[*from..from + rows].to_vec())
            };
            let seen: Vec<(JobId, usize, Vec<u32>)> = parts.iter().map(seen).collect();
            let seen: Vec<Seen<'_>> = seen
                .iter()
                .zip(&parts)
                .map(|((job, from, tokens), part)| Seen { job: *job, from: *from, tokens, features: &part.2 })
                .collect();
            pair.drafter.seen(&seen).unwrap();
            // A job may lose what it has, and begin again.
            if random.chance(20) {
                let lost = random.below(shown.len());
                pair.drafter.forget(JobId(lost as u64));
                at[lost] = shown[lost].first;
            }
        }
        let histories: Vec<Vec<u32>> = cases.iter().map(|case| ids(case, "ids")).collect();
        let requests: Vec<DraftRequest<'_>> =
            (0..).zip(&histories).map(|(job, history)| request(job, history, &sampler)).collect();
        let drafts = pair.drafter.draft(&requests).unwrap();
        for (case, draft) in cases.iter().zip(drafts) {
            assert_eq!(draft.tokens, ids(case, "tokens"), "{name}, {}", case["name"]);
        }
        // Nothing is drafted behind a token that was not seen, nor more than is wanted.
        let mut early = requests[0];
        early.history = &histories[0][..1];
        let short = DraftRequest { depth: 2, ..requests[1] };
        let unknown = DraftRequest { job: JobId(99), ..requests[1] };
        let drafts = pair.drafter.draft(&[early, short, unknown]).unwrap();
        assert_eq!(drafts.iter().map(hf2q_engine::DraftTree::len).collect::<Vec<_>>(), [0, 2, 0]);
    }
}

/// Equal keys make equal draws.
#[test]
fn drafts_are_drawn_by_the_key_of_the_job() {
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let sampling = Sampling { temperature: 1.5, seed: 7, ..Sampling::default() };
    let sampler = Sampler::new(sampling).unwrap();
    let mut pair = Pair::open("ordered", &backend, Passes::ALL);
    let golden = golden(&root().join("fixtures/assistant/ordered"));
    let case = &golden["cases"][2];
    let history = ids(case, "ids");
    Shown::new(&mut pair, 0, case, 128).show(&mut pair.drafter, 128);
    let mut drafts = Vec::new();
    for draws in 0..8 {
        let request = DraftRequest { draws, ..request(0, &history, &sampler) };
        let mut rows: Vec<Vec<f32>> = Vec::new();
        let draft =
            pair.drafter.draft_shown(&[request], &mut |_, row| rows.push(row.to_vec())).unwrap().remove(0);
        let mut so_far = history.clone();
        for row in &rows {
            so_far.push(sampler.sample_allowed(row, &so_far, draws, None).unwrap().token);
        }
        assert_eq!(draft.tokens, so_far[history.len()..]);
        drafts.push(draft.tokens);
    }
    drafts.sort();
    drafts.dedup();
    assert!(drafts.len() > 4, "{drafts:?}");
}

/// A history and what followed it in a draft.
type Log = Arc<Mutex<Vec<(Vec<u32>, Vec<u32>)>>>;

/// Notes what an assistant drafts, and gives every other time what it knows to be right, so that drafts are accepted too.
struct Noted {
    assistant: AssistantDrafter,
    log: Log,
    truth: Vec<Vec<u32>>,
    random: Random,
}

impl Drafter for Noted {
    fn name(&self) -> &str {
        self.assistant.name()
    }

    fn taps(&self) -> &[String] {
        self.assistant.taps()
    }

    fn needs_all_rows(&self) -> bool {
        self.assistant.needs_all_rows()
    }

    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        self.assistant.seen(seen)
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        let mut drafts = self.assistant.draft(requests)?;
        for (request, draft) in requests.iter().zip(&mut drafts) {
            self.log.lock().unwrap().push((request.history.to_vec(), draft.tokens.clone()));
            let known = self.truth.iter().find(|text| text.starts_with(request.history)).unwrap();
            if self.random.chance(60) {
                let right = known[request.history.len()..].iter().take(request.depth).copied();
                *draft = DraftTree::chain(right.collect());
            }
        }
        Ok(drafts)
    }

    fn forget(&mut self, job: JobId) {
        self.assistant.forget(job);
    }
}

/// Tokens of answers to `prompts`, all at once.
fn answers(mut scheduler: Scheduler, prompts: &[Vec<u32>]) -> (Vec<Vec<u32>>, u64) {
    let answers: Arc<Mutex<Vec<Vec<u32>>>> = Arc::new(Mutex::new(vec![Vec::new(); prompts.len()]));
    for (i, prompt) in prompts.iter().enumerate() {
        let sampler = Sampler::new(Sampling::default()).unwrap();
        let answer = Answer { max_tokens: Some(14 + i), ..Answer::new(sampler) };
        let job = Job { prompt: prompt.clone(), task: Task::Answer(Box::new(answer)), deadline: None };
        let answers = Arc::clone(&answers);
        let sink = Box::new(move |event| {
            if let Event::Token { id, .. } = event {
                answers.lock().unwrap()[i].push(id);
            }
            true
        });
        scheduler.submit(job, sink).unwrap();
    }
    while scheduler.step() {}
    let accepted = scheduler.stats().drafts.accepted;
    let answers = answers.lock().unwrap().clone();
    (answers, accepted)
}

/// Behind a scheduler an assistant sees prompts in pieces and of drafts what was accepted; it drafts as if it had seen all at
/// once, and answers are those without it.
#[test]
fn a_scheduler_shows_what_it_keeps() {
    let backend = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    for name in ["dense", "unified", "ordered"] {
        let golden = golden(&root().join("fixtures/assistant").join(name));
        let prompts: Vec<Vec<u32>> =
            golden["cases"].as_array().unwrap().iter().step_by(3).map(|case| ids(case, "ids")).collect();
        let scheduler = |pair: Pair| {
            let options = SchedulerOptions { queue: 16, busy_rows: 24 };
            (Scheduler::new(pair.target, options).unwrap(), pair.drafter)
        };
        let (plain, _) = scheduler(Pair::open(name, &backend, Passes::ALL));
        let (expected, _) = answers(plain, &prompts);
        let (drafted, assistant) = scheduler(Pair::open(name, &backend, Passes::ALL));
        let log = Log::default();
        let truth = prompts.iter().zip(&expected).map(|(p, a)| [p.as_slice(), a].concat()).collect();
        let noted = Noted { assistant, log: Arc::clone(&log), truth, random: Random::new(name, 3) };
        let warn = Box::new(|error: &EngineError| panic!("{error}"));
        let (drafter, shape) = (Box::new(noted), DraftShape::Auto);
        let drafting = Drafting { drafter, depth: DraftDepth::Fixed(3), shape, warn };
        let (found, accepted) = answers(drafted.with_drafts(drafting), &prompts);
        assert_eq!(found, expected, "{name}");
        assert!(accepted > 20, "{name}: {accepted}");
        let log = log.lock().unwrap();
        assert!(log.len() > 10, "{name}: {}", log.len());
        if let Some((history, _)) = log.iter().find(|(_, draft)| draft.is_empty()) {
            panic!("{name}: nothing follows {history:?}");
        }
        let mut pair = Pair::open(name, &backend, Passes::ALL);
        let sampler = Sampler::new(Sampling::default()).unwrap();
        for (history, draft) in log.iter() {
            let tokens = history[..history.len() - 1].to_vec();
            let features = pair.features(&tokens, 128);
            Shown { job: JobId(0), first: 0, tokens, features }.show(&mut pair.drafter, 128);
            let whole = DraftRequest { depth: draft.len(), ..request(0, history, &sampler) };
            assert_eq!(pair.drafter.draft(&[whole]).unwrap()[0].tokens, *draft, "{name}, {history:?}");
            pair.drafter.forget(JobId(0));
        }
    }
}

/// The head of the published small drafters: 2,048 groups of 128 tokens, of which 32 get logits.
#[test]
fn a_head_of_many_groups_chooses_as_the_reference_does() {
    let with = |config: Config| Config { vocab: 262_144, ..config };
    let mut drafter = with(toy::config(Architecture::Gemma4Assistant));
    let target = with(toy::configs().into_iter().find(|(name, _)| *name == "gemma4-dense").unwrap().1);
    drafter.assistant.as_mut().unwrap().centroids = Some(Centroids { count: 2048, top_k: 32 });
    let assistant = Assistant::new(toy::build(drafter, 1), &toy::build(target, 1)).unwrap();
    let recording = assistant.record(KvFormat::F16).unwrap();
    let mut random = Random::new("head", 1);
    let mut row =
        |width: usize| -> Vec<f32> { (0..width).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect() };
    let inputs: Vec<Vec<f32>> = recording.inputs.iter().map(|&width| row(width)).collect();
    let compute = |backend: &dyn Backend| {
        let plan = Arc::new(Plan::compile(recording.clone(), Passes::ALL));
        let weights = assistant.weights_for(&recording);
        let mut engine = Engine::open(backend, plan, weights, engine_options(1, 4)).unwrap();
        let sequence = engine.add_sequence().unwrap();
        let work = Work::new(sequence, &[0], LogitRows::Last).with_inputs(&inputs);
        let logits = engine.step(&[work], None).unwrap().to_vec();
        let scores = engine.output(Assistant::SCORES).unwrap();
        assistant.of_all_tokens(&scores, &logits).into_owned()
    };
    let cpu = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    let (expected, found) = (compute(&ReferenceBackend), compute(&cpu));
    assert_eq!(expected.iter().filter(|x| x.is_finite()).count(), 32 * 128);
    for (token, (e, f)) in expected.iter().zip(&found).enumerate() {
        assert!(e == f || (e - f).abs() < 1e-4 * (1.0 + e.abs()), "token {token}: {f} instead of {e}");
    }
}
