//! Engines of toy models on the reference backend.

use std::sync::Arc;

use hf2q_engine::{Budget, CacheOptions, Engine, EngineOptions, LogitRows, SequenceId, WindowPolicy};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{KvFormat, Passes, Plan};
use hf2q_reference::ReferenceBackend;

pub(crate) const SIZES: EngineOptions = EngineOptions {
    context: 200,
    sequences: 3,
    rows: 48,
    logit_rows: 48,
    cache: CacheOptions { budget: Budget::Sequences, windows: WindowPolicy::Drop { ends: 0 } },
};

pub(crate) fn engine(model: &Model, options: EngineOptions) -> Engine {
    let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
    let weights = model.weights_for(&recording);
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    Engine::open(&ReferenceBackend, plan, weights, options).unwrap()
}

/// A toy with a sliding window, so that pages are dropped.
pub(crate) fn windowed() -> Model {
    toy::all(5).into_iter().find(|(name, _)| *name == "gemma3").unwrap().1
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
