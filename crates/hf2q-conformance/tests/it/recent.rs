//! Recent positions in caches of their own: what is exact is determined by positions, and by nothing else.

use std::sync::Arc;

use hf2q_conformance::Subject;
use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_engine::{CacheOptions, Engine, EngineOptions, LogitRows};
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, KvFormat, PAGE, Passes, Plan, Span};
use hf2q_reference::ReferenceBackend;

use crate::cpu::wide_toys;
use crate::support::Random;

const TOKENS: usize = 2 * PAGE + 20;

fn named(name: &str) -> Model {
    wide_toys().into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// Bits of the logits of some tokens, given in chunks of 50.
fn run(backend: &dyn Backend, model: &Model, kv: &str) -> Vec<Vec<u32>> {
    let options: RecordOptions = kv.parse().unwrap();
    let Subject { recording, weights } = Subject::of_model(model, &options).unwrap();
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    let cache = CacheOptions::default();
    let options = EngineOptions { context: 3 * PAGE, sequences: 1, rows: 50, logit_rows: 50, cache };
    let mut engine = Engine::open(backend, plan, weights, options).unwrap();
    let id = engine.add_sequence().unwrap();
    let mut random = Random::new("recent", 1);
    let tokens: Vec<u32> = (0..TOKENS).map(|_| random.below(150) as u32).collect();
    let mut bits = vec![];
    let keep = |row: &[f32]| {
        assert!(row.iter().all(|x| x.is_finite()));
        bits.push(row.iter().map(|x| x.to_bits()).collect());
        true
    };
    engine.extend(id, &tokens, LogitRows::All, keep).unwrap();
    bits
}

fn backends() -> Vec<Box<dyn Backend>> {
    let cpu = |isa| CpuBackend::new(CpuOptions { threads: 2, isa }).unwrap();
    let mut all: Vec<Box<dyn Backend>> = vec![Box::new(ReferenceBackend)];
    all.extend(Isa::available().into_iter().map(|isa| Box::new(cpu(Some(isa))) as Box<dyn Backend>));
    all
}

#[test]
fn keeping_positions_a_second_time_as_they_are_changes_no_bit() {
    for backend in backends() {
        for name in ["gemma4-moe", "gemma3", "llama"] {
            let model = named(name);
            for format in ["tq2", "tq4", "tq8"] {
                let once = run(&*backend, &model, &format!("{format},recent:off"));
                let twice = run(&*backend, &model, &format!("{format},recent:{format}"));
                assert!(once == twice, "{name} {format} {}", backend.describe());
            }
            // The keys that are no codes are stored twice as they are.
            let once = run(&*backend, &model, "k=q8_0,v=tq4,recent:off");
            let twice = run(&*backend, &model, "k=q8_0,v=tq4,recent:tq4");
            assert!(once == twice, "{name} {}", backend.describe());
        }
    }
}

#[test]
fn the_first_page_is_as_exact_as_recent_positions() {
    for backend in backends() {
        for name in ["gemma4-moe", "gemma3", "llama"] {
            let model = named(name);
            for exact in ["f32", "f16", "q8_0"] {
                let plain = run(&*backend, &model, exact);
                let coded = run(&*backend, &model, &format!("tq2,recent:{exact}"));
                assert_eq!((plain.len(), coded.len()), (TOKENS, TOKENS));
                for position in 0..TOKENS {
                    let same = plain[position] == coded[position];
                    assert_eq!(same, position < PAGE, "{name} {exact} {position} {}", backend.describe());
                }
            }
        }
    }
}

#[test]
fn layers_with_codes_have_a_cache_of_recent_positions() {
    let model = named("gemma4-moe");
    let sizes = |kv: &str| {
        let recording = model.record(&kv.parse().unwrap()).unwrap();
        let recent = recording.groups.iter().position(|g| g.span == Span::Pages(1));
        let of = |c: &&hf2q_plan::Cache| Some(c.group.index()) == recent;
        let caches = recording.caches.iter().filter(of);
        caches.map(|c| (c.name.clone(), c.k_format, c.v_format, c.position_bytes())).collect::<Vec<_>>()
    };
    let (f16, q8_0) = (KvFormat::F16, KvFormat::Q8_0);
    assert_eq!(sizes("f16"), []);
    assert_eq!(sizes("tq4,recent:off"), []);
    // Two vectors of 128 in two heads; one of 64, of which keys are formed.
    let name = |i: usize| format!("L{i:02}.kv_recent");
    let (sliding, global) = (2 * 2 * 256, 128);
    let all = [(name(0), f16, f16, sliding), (name(1), f16, f16, sliding), (name(2), f16, f16, global)];
    assert_eq!(sizes("tq4"), all);
    assert_eq!(sizes("global:tq4"), all[2..]);
    let mixed = sizes("sliding:k=q8_0,v=tq4");
    assert_eq!((mixed.len(), mixed[0].1, mixed[0].2), (2, q8_0, f16));
}
