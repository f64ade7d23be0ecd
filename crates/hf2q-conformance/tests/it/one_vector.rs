//! Keys formed of values: alone, and in models that use them.

use std::collections::HashMap;

use hf2q_conformance::{Subject, one_vector};
use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_engine::{CacheOptions, Engine, EngineOptions, LogitRows};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, RecordOptions, StoredTensor, toy};
use hf2q_plan::{Backend, KvFormat, Op, PAGE, Passes, Plan};
use hf2q_reference::ReferenceBackend;

use crate::goldens::{converted, root};

fn cpu(threads: usize, isa: Option<Isa>) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa }).unwrap()
}

#[test]
fn formed_keys_are_those_that_would_have_been_stored() {
    for (isa, threads) in Isa::available().into_iter().zip(1..) {
        let report = one_vector::check(&cpu(threads, Some(isa)));
        assert!(report.passed() && report.cases.len() == 40, "{report}");
    }
    let report = one_vector::check(&ReferenceBackend);
    assert!(report.passed(), "{report}");
}

/// The same model with a V projection of the same weights as K's, so that it stores keys and values.
fn twin(model: &Model) -> Model {
    let mut config = model.config().clone();
    let mut weights: HashMap<String, StoredTensor> = HashMap::new();
    for row in config.tensors() {
        weights.extend(model.tensor(&row.gguf).map(|t| (row.gguf.clone(), t.clone())));
    }
    for (i, layer) in config.layers.iter_mut().enumerate().filter(|(_, l)| l.v_from_k) {
        layer.v_from_k = false;
        let k = model.tensor(&format!("blk.{i}.attn_k.weight")).unwrap().clone();
        weights.insert(format!("blk.{i}.attn_v.weight"), k);
    }
    Model::new(config, weights).unwrap()
}

/// Bits of the logits of `tokens`, and the bytes of a page of global layers.
fn run(backend: &dyn Backend, model: &Model, format: KvFormat, tokens: &[u32]) -> (Vec<u32>, usize) {
    let Subject { recording, weights } = Subject::of_model(model, &RecordOptions::uniform(format)).unwrap();
    let one = recording.ops.iter().any(|o| matches!(&o.op, Op::KvStore(s) if s.k.is_none()));
    assert_eq!(one, model.config().layers.iter().any(|l| l.v_from_k));
    let plan = std::sync::Arc::new(Plan::compile(recording, Passes::ALL));
    let cache = CacheOptions::default();
    let options = EngineOptions { context: 4 * PAGE, sequences: 1, rows: 50, logit_rows: 50, cache };
    let mut engine = Engine::open(backend, plan, weights, options).unwrap();
    let id = engine.add_sequence().unwrap();
    let mut bits = vec![];
    let keep = |row: &[f32]| {
        assert!(row.iter().all(|x| x.is_finite()));
        bits.extend(row.iter().map(|x| x.to_bits()));
        true
    };
    engine.extend(id, tokens, LogitRows::All, keep).unwrap();
    let groups = engine.cache_stats().groups;
    (bits, groups.iter().find(|g| g.name == "global").unwrap().page_bytes)
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * i * 7 % 150) as u32).collect()
}

/// Both give the same logits in formats that round components alone, and nearly the same in half of the memory always.
fn check_model(name: &str, model: &Model, tokens: &[u32]) {
    let two = twin(model);
    for (isa, threads) in Isa::available().into_iter().zip(1..) {
        let backend = cpu(threads, Some(isa));
        let (a, a_bytes) = run(&backend, model, KvFormat::F32, tokens);
        let (b, b_bytes) = run(&backend, &two, KvFormat::F32, tokens);
        assert!(a == b, "{name}, {}", isa.name());
        assert_eq!(a_bytes * 2, b_bytes, "{name}");
    }
}

#[test]
fn models_with_one_vector_have_the_logits_of_those_with_two() {
    let toys = toy::all(5).into_iter().filter(|(_, m)| m.config().layers.iter().any(|l| l.v_from_k));
    let toys: Vec<_> = toys.collect();
    assert!(!toys.is_empty());
    for (name, model) in toys {
        check_model(name, &model, &tokens(150));
    }
    for name in ["tiny-dense", "tiny-moe"] {
        let gguf: Gguf = converted(&root().join("models/demo").join(name), "f32");
        check_model(name, &Model::load(&gguf).unwrap(), &tokens(100));
    }
}

#[test]
fn global_caches_of_heads_of_512_are_half_as_large_in_every_format() {
    let gguf = converted(&root().join("models/demo/tiny-dense"), "f32");
    let model = Model::load(&gguf).unwrap();
    let two = twin(&model);
    for format in KvFormat::ALL {
        let bytes = |model: &Model| {
            let recording = model.record(&RecordOptions::uniform(format)).unwrap();
            let global = recording.caches.iter().filter(|c| recording.groups[c.group.index()].span.is_all());
            global.map(hf2q_plan::Cache::page_bytes).sum::<usize>()
        };
        assert!(bytes(&model) > 0);
        // Vectors that are cut, one for keys and values, have four scales; two that are not have two each.
        let scales = if format.turbo().is_some() { bytes(&model) * 2 - bytes(&two) } else { 0 };
        let recording = model.record(&RecordOptions::uniform(format)).unwrap();
        let cut = recording.caches.iter().filter(|c| c.cut().is_some());
        let heads: usize = cut.map(|c| c.kv_heads).sum();
        assert_eq!(scales, 2 * 2 * 2 * PAGE * heads, "{}", format.name());
        assert_eq!(bytes(&model) * 2, bytes(&two) + scales, "{}", format.name());
    }
    // Where keys and values have different formats, both are stored.
    let options: RecordOptions = "k=tq6,v=tq4".parse().unwrap();
    assert!(model.record(&options).unwrap().caches.iter().all(|c| c.formed_keys.is_none()));
}
