//! Gemma 4's assistants against what the transformers library drafted with them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::draft::AssistantDrafter;
use hf2q_engine::{
    CacheOptions, DraftRequest, Drafter, Engine, EngineOptions, JobId, LogitRows, Sampler, Sampling, Seen,
    Work,
};
use hf2q_model::assistant::Assistant;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, KvFormat, NamedOp, Observer, Passes, Plan, Tensors};
use hf2q_reference::ReferenceBackend;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::goldens::{converted, root};

const STEPS: usize = 6;

/// What the tapped operations of a step gave.
struct Watch<'a> {
    taps: &'a [String],
    found: HashMap<String, Vec<f32>>,
}

impl Observer for Watch<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.taps.contains(&op.name)
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let values = tensors.values(op.op.access().writes[0]).unwrap();
        self.found.insert(op.name.clone(), values);
    }
}

/// A target and its drafter.
struct Pair {
    target: Engine,
    drafter: AssistantDrafter,
}

fn options(rows: usize) -> EngineOptions {
    let cache = CacheOptions::default();
    EngineOptions { context: 256, sequences: 4, rows, logit_rows: rows, cache }
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
        let recording = RecordOptions { all_rows: true, ..RecordOptions::uniform(KvFormat::F32) };
        let recording = model.record(&recording).unwrap();
        let assistant = Assistant::new(drafter, &model).unwrap();
        let how = (KvFormat::F32, options(32));
        let drafter = AssistantDrafter::open(assistant, &recording, backend, how).unwrap();
        let weights = model.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, passes));
        let target = Engine::open(backend, plan, weights, options(128)).unwrap();
        Self { target, drafter }
    }

    /// Computes all tokens but the last in steps of `chunk`, and shows them to the drafter.
    fn follow(&mut self, job: JobId, ids: &[u32], chunk: usize) {
        let sequence = self.target.add_sequence().unwrap();
        let taps = self.drafter.taps().to_vec();
        for (i, tokens) in ids[..ids.len() - 1].chunks(chunk).enumerate() {
            let mut watch = Watch { taps: &taps, found: HashMap::new() };
            let work = Work::new(sequence, tokens, LogitRows::Last);
            self.target.step(&[work], Some(&mut watch)).unwrap();
            let features: Vec<Vec<f32>> = taps.iter().map(|tap| watch.found[tap].clone()).collect();
            let seen = Seen { job, from: i * chunk, tokens, features: &features };
            self.drafter.seen(&[seen]).unwrap();
        }
        self.target.remove_sequence(sequence).unwrap();
    }
}

fn ids(case: &Value, key: &str) -> Vec<u32> {
    case[key].as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn request<'a>(job: u64, history: &'a [u32], sampler: &'a Sampler) -> DraftRequest<'a> {
    DraftRequest { job: JobId(job), history, sampler, draws: 0, room: 8, depth: STEPS }
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
            pair.follow(JobId(job), &history, chunk);
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
