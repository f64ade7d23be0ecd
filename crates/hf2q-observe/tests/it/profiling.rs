//! Profiles cover what ran, whatever the model.

use std::sync::Arc;
use std::time::Duration;

use hf2q_engine::{CacheOptions, Engine, EngineOptions};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_observe::{By, Phase, Profile, Workload, profile};
use hf2q_plan::{Backend, Passes, Plan, Roofline};
use hf2q_reference::ReferenceBackend;

use crate::support::cpu;

const WORK: Workload = Workload { prompt: 20, decode: 3, depth: 5 };

/// A round number a second of everything.
const ROOF: Roofline = Roofline { bytes: 1e9, flops: 1e9, int8_ops: 1e9 };

/// A toy by its name.
pub(crate) fn named(name: &str) -> Model {
    toy::all(3).into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// An engine that reads up to `rows` rows a step.
pub(crate) fn open(
    model: &Model,
    backend: &dyn Backend,
    (passes, rows): (Passes, usize),
) -> (Engine, Arc<Plan>) {
    let plan = Arc::new(Plan::compile(model.record(&RecordOptions::default()).unwrap(), passes));
    let weights = model.weights_for(&plan.recording);
    let cache = CacheOptions::default();
    let options = EngineOptions { context: 64, sequences: 1, rows, logit_rows: 1, cache };
    (Engine::open(backend, Arc::clone(&plan), weights, options).unwrap(), plan)
}

fn measured(model: &Model, backend: &dyn Backend) -> (Profile, Arc<Plan>) {
    let (mut engine, plan) = open(model, backend, (Passes::ALL, 16));
    let profile = profile(&mut engine, (Arc::clone(&plan), ROOF), WORK, &mut || true).unwrap().unwrap();
    // Nothing is left behind.
    engine.add_sequence().unwrap();
    (profile, plan)
}

#[test]
fn every_operation_is_there_with_its_cost() {
    for (name, model) in toy::all(3) {
        let (profile, plan) = measured(&model, &cpu(2));
        let [prompt, decode] = &profile.phases[..] else { panic!("{name}: two phases") };
        assert_eq!((prompt.phase, prompt.tokens, prompt.steps), (Phase::Prompt, 20, 2));
        assert_eq!((decode.phase, decode.tokens, decode.steps), (Phase::Decode, 3, 3));
        let ops = |p: &hf2q_observe::PhaseProfile| -> Vec<(String, u64)> {
            let own = p.entries.iter().filter(|e| e.preparation.is_none());
            own.map(|e| (e.op.clone(), e.calls)).collect()
        };
        let all: Vec<(String, u64)> = plan.recording.ops.iter().map(|op| (op.name.clone(), 3)).collect();
        assert_eq!(ops(decode), all, "{name}");
        // Where nobody wants logits, what makes them does not run.
        assert!(ops(prompt).iter().all(|(_, calls)| (1..=2).contains(calls)), "{name}");
        assert_eq!(ops(prompt).last().unwrap().1, 1, "{name}");
        for phase in &profile.phases {
            assert!(phase.unobserved > Duration::ZERO && phase.sum() > Duration::ZERO);
            for entry in phase.entries.iter().filter(|e| e.preparation.is_none()) {
                assert!(entry.cost.bytes() > 0 && entry.bound > Duration::ZERO, "{name}: {}", entry.op);
            }
        }
        let attention = |p: &hf2q_observe::PhaseProfile| -> u64 {
            p.entries.iter().filter(|e| e.op == "L00.attn.attend").map(|e| e.cost.flops).sum()
        };
        // Four multiply-adds for each query column and pair of positions: rows 5 to 24, then 7, 9 and 11, each with itself.
        let pairs = [(6..=25).map(|n: u64| n.min(window(&plan))).sum::<u64>(), 8 + 10 + 12];
        let columns = 4 * 32;
        assert_eq!(attention(decode), 4 * columns * pairs[1], "{name}");
        assert_eq!(attention(prompt), 4 * columns * pairs[0], "{name}");
    }
}

/// How much the first layer sees.
fn window(plan: &Plan) -> u64 {
    let cache = &plan.recording.caches[0];
    plan.recording.groups[cache.group.index()].span.most().map_or(u64::MAX, u64::from)
}

#[test]
fn sums_are_the_same_by_whatever_they_are_grouped() {
    let model = named("gemma4-moe");
    for backend in [&cpu(1) as &dyn Backend, &ReferenceBackend] {
        let (profile, plan) = measured(&model, backend);
        for phase in &profile.phases {
            for by in [By::Op, By::Kind, By::Layer] {
                let lines = phase.lines(by);
                assert_eq!(lines.iter().map(|l| l.time).sum::<Duration>(), phase.sum());
                assert!(lines.windows(2).all(|l| l[0].time >= l[1].time));
            }
            assert!(phase.lines(By::Op).len() >= plan.recording.ops.len() / 2);
            assert!(phase.lines(By::Kind).iter().any(|l| l.name == "expert_mat_mul f32"));
            assert!(phase.lines(By::Kind).iter().any(|l| l.name == "attention f16"));
        }
        let decode = profile.phases[1].folded();
        let mut stacks = decode.lines().map(|l| l.rsplit_once(' ').unwrap());
        assert!(stacks.clone().all(|(s, n)| s.starts_with("decode;") && n.parse::<u64>().unwrap() > 0));
        assert!(stacks.any(|(s, _)| s == "decode;L00;attn;q_proj"), "{decode}");
    }
}

#[test]
fn one_phase_alone_and_an_early_end() {
    let model = named("llama");
    let (mut engine, plan) = open(&model, &cpu(1), (Passes::NONE, 16));
    let of = (plan, ROOF);
    let work = Workload { prompt: 0, decode: 2, depth: 0 };
    let profile_of = |engine: &mut Engine, work, go_on: &mut dyn FnMut() -> bool| {
        profile(engine, (Arc::clone(&of.0), of.1), work, go_on)
    };
    let got = profile_of(&mut engine, work, &mut || true).unwrap().unwrap();
    assert_eq!(got.phases.iter().map(|p| p.phase).collect::<Vec<_>>(), [Phase::Decode]);
    let got = profile_of(&mut engine, Workload { prompt: 20, ..work }, &mut || false).unwrap();
    assert!(got.is_none());
    let too_long = Workload { prompt: 65, ..work };
    assert!(profile_of(&mut engine, too_long, &mut || true).is_err());
}
