//! Engines of toy models with a collector.

use std::sync::Arc;

use hf2q_convert::Importance;
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{CacheOptions, Engine, EngineOptions};
use hf2q_model::{Model, RecordOptions};
use hf2q_observe::{Collector, Reading, Scope, read_chunk};
use hf2q_plan::{Backend, KvFormat, Passes, Plan};

pub(crate) const CHUNK: usize = 48;

/// `n` ids.
pub(crate) fn tokens(n: usize) -> Vec<u32> {
    (0..).take(n).map(|i: u32| (i * 37 + 11 + i * i % 13) % 150).collect()
}

pub(crate) fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa: None }).unwrap()
}

/// How a model is opened.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) passes: Passes,
    pub(crate) scope: Scope,
    pub(crate) rows: usize,
    pub(crate) logit_rows: usize,
}

pub(crate) const PLAIN: Setup =
    Setup { passes: Passes::NONE, scope: Scope::LayersAndOutput, rows: CHUNK, logit_rows: CHUNK };

pub(crate) fn open(model: &Model, backend: &dyn Backend, setup: Setup) -> (Engine, Collector) {
    let recording = model.record(&RecordOptions::uniform(KvFormat::F32)).unwrap();
    let weights = model.weights_for(&recording);
    let plan = Arc::new(Plan::compile(recording, setup.passes));
    let collector = Collector::new(Arc::clone(&plan), setup.scope);
    let Setup { rows, logit_rows, .. } = setup;
    let cache = CacheOptions::default();
    let options = EngineOptions { context: CHUNK, sequences: 1, rows, logit_rows, cache };
    (Engine::open(backend, plan, weights, options).unwrap(), collector)
}

pub(crate) const ALL_LOGITS: Reading = Reading { bos: None, all_logits: true, score: false };

/// What two chunks give.
pub(crate) fn measure(model: &Model, backend: &dyn Backend, setup: Setup) -> Importance {
    let (mut engine, mut collector) = open(model, backend, setup);
    for chunk in tokens(2 * CHUNK).chunks(CHUNK) {
        let read = read_chunk(&mut engine, chunk, ALL_LOGITS, &mut collector, &mut || true).unwrap();
        assert!(read.is_some());
    }
    collector.finish(CHUNK as u32, vec!["toy".into()]).unwrap()
}
