//! What is said to be needed is what is allocated.

use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{Budget, CacheOptions, Engine, EngineOptions, Needs, Scheduler};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{PAGE, Passes, Plan};

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

#[test]
fn the_longest_sequence_is_the_one_that_a_scheduler_takes() {
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    for (name, model) in toy::all(2) {
        let recording = model.record(&RecordOptions::default()).unwrap();
        let weights = model.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, Passes::ALL));
        for pages in [1, 2, 3, 9] {
            let cache = CacheOptions { budget: Budget::Pages(pages), ..CacheOptions::default() };
            let options = EngineOptions { context: 500, cache, ..SIZES };
            let needs = Needs::new(&backend, &plan, weights.clone(), options).unwrap();
            let engine = Engine::open(&backend, Arc::clone(&plan), weights.clone(), options).unwrap();
            let taken = Scheduler::new(engine, crate::scheduler::OPTIONS).unwrap().limits().tokens;
            assert_eq!(needs.tokens().min(500), taken, "{name}, {pages} pages");
        }
    }
}

/// A toy whose heads can be stored as codes.
fn wide() -> Model {
    let mut config = toy::configs().into_iter().find(|(name, _)| *name == "gemma3").unwrap().1;
    config.layers.iter_mut().for_each(|l| (l.head_dim, l.rope.dims) = (128, 128));
    toy::build(config, 2)
}

#[test]
fn recent_positions_take_the_same_for_every_context() {
    let (backend, model) = (CpuBackend::new(CpuOptions { threads: 2, isa: None }).unwrap(), wide());
    let needs = |kv: &str, context: usize, rows: usize| {
        let recording = model.record(&kv.parse::<RecordOptions>().unwrap()).unwrap();
        let weights = model.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, Passes::ALL));
        let options = EngineOptions { context, sequences: 2, rows, logit_rows: 1, ..SIZES };
        let needs = Needs::new(&backend, &plan, weights.clone(), options).unwrap();
        let engine = Engine::open(&backend, plan, weights, options).unwrap();
        assert_eq!(needs.caches(), engine.memory().unwrap().caches, "{kv}");
        needs
    };
    let [short, long, off] = [("tq4", 1000, 100), ("tq4", 5000, 100), ("tq4,recent:off", 5000, 100)]
        .map(|(k, c, r)| needs(k, c, r));
    let vectors: usize = model.config().layers.iter().map(|l| 2 * l.kv_heads).sum();
    assert_eq!((long.token_bytes(), off.token_bytes()), (vectors * 66, vectors * 66));
    assert_eq!((long.sequence_bytes(), off.sequence_bytes()), (vectors * 256 * PAGE, 0));
    // A page for each of two sequences and one into which each can reach, and two that a step of 100 rows begins.
    let recent = |n: &Needs| n.groups.iter().find(|g| g.fixed).map(|g| (g.name.clone(), g.pages));
    assert_eq!((recent(&short), recent(&long)), (Some(("recent".into(), 6)), Some(("recent".into(), 6))));
    assert_eq!(recent(&off), None);
    assert_eq!(long.caches() - off.caches(), 6 * vectors * 256 * PAGE);
}
