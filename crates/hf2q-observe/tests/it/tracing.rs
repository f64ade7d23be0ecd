//! What is traced is what operations wrote.

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_engine::Engine;
use hf2q_model::{Model, toy};
use hf2q_observe::{Steps, TraceStep, Traced, Tracer, trace};
use hf2q_plan::{Backend, Passes, Plan, RowKind, SelectError};
use hf2q_reference::ReferenceBackend;
use safetensors::{Dtype, SafeTensors};

use crate::profiling::{named, open};
use crate::support::{cpu, tokens};

const PROMPT: usize = 20;

fn run((engine, plan): (&mut Engine, &Arc<Plan>), globs: &[&str], steps: &str) -> (Tracer, Vec<TraceStep>) {
    let mut tracer = Tracer::new(Arc::clone(plan), globs).unwrap();
    let steps: Steps = steps.parse().unwrap();
    let read = trace(engine, &mut tracer, (&tokens(PROMPT), &steps), &mut || true).unwrap().unwrap();
    (tracer, read)
}

fn traced(model: &Model, backend: &dyn Backend, passes: Passes) -> Vec<Traced> {
    let (mut engine, plan) = open(model, backend, (passes, 16));
    run((&mut engine, &plan), &["*.q_proj", "*.kv_store", "output"], "0..2").0.traced().to_vec()
}

#[test]
fn neither_backends_nor_fusion_change_what_is_traced() {
    for (name, model) in toy::all(3) {
        let expected = traced(&model, &ReferenceBackend, Passes::NONE);
        assert!(expected.iter().any(|t| t.name.ends_with("kv_store.v")), "{name}");
        for (passes, threads) in [(Passes::NONE, 1), (Passes::ALL, 2)] {
            let got = traced(&model, &cpu(threads), passes);
            assert_eq!(got.len(), expected.len(), "{name}");
            for (a, b) in got.iter().zip(&expected) {
                assert_eq!((&a.name, a.step, a.shape), (&b.name, b.step, b.shape), "{name}");
                let (Some(a), Some(b)) = (a.values(), b.values()) else { continue };
                let (a, b): (Vec<f32>, Vec<f32>) = (a.collect(), b.collect());
                let largest = b.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 2e-3 * largest);
                assert!(near && largest > 0.0, "{name}");
            }
        }
    }
}

#[test]
fn a_file_says_what_it_holds() {
    let model = named("gemma4-moe");
    let (mut engine, plan) = open(&model, &cpu(2), (Passes::ALL, 16));
    let globs = ["L00.attn.kv_store", "L0?.moe.route.experts", "output"];
    let (tracer, read) = run((&mut engine, &plan), &globs, "1..2");
    assert_eq!((read[0].step, read[0].first, read[0].tokens.len()), (1, 16, 4));
    assert_eq!((read[1].step, read[1].first, read[1].tokens.len()), (2, PROMPT, 1));
    let metadata = HashMap::from([("model".to_owned(), "toy".to_owned())]);
    let bytes = tracer.safetensors(&read, metadata).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let header = header.metadata().clone().unwrap();
    assert_eq!(
        (header["model"].as_str(), header["positions"].as_str()),
        ("toy", "{\"1\":[16, 17, 18, 19],\"2\":[20]}")
    );
    assert_eq!(header["logit_positions"], "{\"1\":[19],\"2\":[20]}");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let shape = |name: &str| file.tensor(name).unwrap().shape().to_vec();
    let (vocabulary, layers) = (plan.recording.logits.width, plan.recording.caches.len());
    assert_eq!((shape("output@1"), shape("output@2")), (vec![1, vocabulary], vec![1, vocabulary]));
    assert_eq!(shape("L00.attn.kv_store.k@1")[0], 4);
    let experts = file.tensor("L00.moe.route.experts@1").unwrap();
    assert_eq!((experts.dtype(), experts.shape()), (Dtype::I32, &[4, 2][..]));
    assert_eq!(file.len(), 2 * (2 + layers + 1));
    // What was kept is what was announced.
    let step_rows = tracer.traced().iter().filter(|t| t.rows == RowKind::Step);
    let kept: usize = step_rows.map(|t| t.shape[0] * t.shape[1] * 4).sum();
    assert!(tracer.bytes(5) as usize >= kept);
}

#[test]
fn steps_behind_the_text_take_the_most_likely_token() {
    let model = named("llama");
    let (mut engine, plan) = open(&model, &cpu(1), (Passes::ALL, 16));
    let (tracer, read) = run((&mut engine, &plan), &["output"], "1..4");
    for (logits, step) in tracer.traced().iter().zip(&read[1..]) {
        let values: Vec<f32> = logits.values().unwrap().collect();
        let best = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap();
        assert_eq!(step.tokens, [best as u32]);
    }
    // Statistics are of all steps together.
    let stats = tracer.stats();
    assert_eq!((stats.len(), stats[0].count), (1, 4 * plan.recording.logits.width));
    assert_eq!(stats[0].histogram.0.iter().sum::<u64>(), stats[0].count as u64);
}

#[test]
fn mistakes_and_an_early_end() {
    let model = named("llama");
    let (mut engine, plan) = open(&model, &cpu(1), (Passes::ALL, 16));
    match Tracer::new(Arc::clone(&plan), &["output", "L00.attn.kv_stor.k"]) {
        Err(SelectError::NoMatch { near, .. }) => assert_eq!(near[0], "L00.attn.kv_store.k"),
        _ => panic!("a pattern matches nothing"),
    }
    let mut tracer = Tracer::new(plan, &["output"]).unwrap();
    let read = trace(&mut engine, &mut tracer, (&tokens(PROMPT), &Steps::all()), &mut || false);
    assert!(read.unwrap().is_none() && tracer.traced().is_empty());
    // The engine's only sequence is free again.
    let read = trace(&mut engine, &mut tracer, (&tokens(PROMPT), &Steps::all()), &mut || true);
    assert_eq!(read.unwrap().map(|steps| steps.len()), Some(PROMPT.div_ceil(16)));
}
