//! What is said to be needed is what is allocated.

use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{Engine, EngineOptions, Needs};
use hf2q_model::{RecordOptions, toy};
use hf2q_plan::{Passes, Plan};

use crate::support::SIZES;

#[test]
fn an_engine_takes_what_it_needs() {
    let backend = CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap();
    for (name, model) in toy::all(2) {
        for (kv, options) in [
            ("f16", SIZES),
            ("f32", EngineOptions { context: 1000, sequences: 1, rows: 100, logit_rows: 1, ..SIZES }),
            ("q8_0", EngineOptions { rows: 1, logit_rows: 1, ..SIZES }),
        ] {
            let recording = model.record(&kv.parse::<RecordOptions>().unwrap()).unwrap();
            let weights = model.weights_for(&recording);
            let plan = Arc::new(Plan::compile(recording, Passes::ALL));
            let needs = Needs::new(&backend, &plan, weights.clone(), options).unwrap();
            let engine = Engine::open(&backend, plan, weights, options).unwrap();
            let memory = engine.memory().unwrap();
            assert_eq!((needs.caches(), needs.work), (memory.caches, memory.work), "{name}, {kv}");
            let pages: Vec<usize> = engine.cache_stats().groups.iter().map(|g| g.pages).collect();
            assert_eq!(needs.groups.iter().map(|g| g.pages).collect::<Vec<_>>(), pages, "{name}, {kv}");
        }
    }
}
