//! What the backend refuses, and how it says so.

use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    Backend, BackendError, Limits, Op, Passes, Plan, Recorder, RowKind, SlotMove, StepError, TensorKind,
    View, Weight,
};

use crate::model::{PAGES, backend, limits, open, recording, step, weights};

fn refused(plan: Plan, weights: Vec<Bytes>) -> String {
    let backend = backend(1, Isa::detect());
    let pages = vec![PAGES; plan.recording.groups.len()];
    match backend.open(Arc::new(plan), weights, &Limits { pages, ..limits(8) }) {
        Ok(_) => panic!("opened"),
        Err(e) => e.to_string(),
    }
}

fn plan() -> (Plan, Vec<Bytes>) {
    let recording = recording(TensorType::F32);
    let weights = weights(&recording);
    (Plan::compile(recording, Passes::ALL), weights)
}

#[test]
fn threads_are_counted_from_one() {
    for threads in [0, 5000] {
        let error = CpuBackend::new(CpuOptions { threads, isa: None }).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("accepted are 1 to 1024"), "{error}");
    }
    let backend = CpuBackend::new(CpuOptions { threads: 3, isa: None }).unwrap();
    assert_eq!(backend.describe(), format!("cpu: {}, 3 threads", Isa::detect().name()));
}

#[test]
fn weights_need_their_bytes() {
    let (plan, mut weights) = plan();
    let bytes = weights[1].len();
    weights[1] = weights[1].slice(0..bytes - 4).unwrap();
    assert_eq!(
        refused(plan.clone(), weights.clone()),
        format!("tensor global.q has {} bytes, expected {bytes}", bytes - 4)
    );
    weights.pop();
    assert!(refused(plan, weights).contains("weights given"));
}

#[test]
fn groups_need_their_pages() {
    let (plan, weights) = plan();
    let backend = backend(1, Isa::detect());
    let mut limits = limits(8);
    limits.pages.pop();
    assert!(backend.open(Arc::new(plan), weights, &limits).is_err());
}

#[test]
fn types_without_a_kernel_are_named() {
    let mut r = Recorder::default();
    let table = r.weight("table", Weight { ty: TensorType::F32, cols: 4, rows: 3, experts: 1 });
    let integers = r.weight("integers", Weight { ty: TensorType::I8, cols: 4, rows: 2, experts: 1 });
    let x = r.embed("embed", table, 1.0);
    let logits = r.mat_mul("product", x, integers);
    let plan = Plan::compile(r.finish(logits).unwrap(), Passes::ALL);
    let error = refused(plan, vec![Bytes::from_vec(vec![0; 48]), Bytes::from_vec(vec![0; 8])]);
    assert!(
        error.contains("operation product") && error.contains("tensor integers is i8 in rows of 4"),
        "{error}"
    );
}

#[test]
fn plans_with_hazards_or_views_outside_are_refused() {
    let (good, weights) = plan();
    let mut merged = good.clone();
    let first = merged.waves.remove(0);
    merged.waves[0].start = first.start;
    assert!(refused(merged, weights.clone()).contains("meets a write of its own wave"));
    let mut short = good.clone();
    short.waves.pop();
    assert!(refused(short, weights.clone()).contains("in no wave"));
    let mut wide = good;
    for op in &mut wide.recording.ops {
        if let Op::SoftCap(o) = &mut op.op {
            o.x.offset = usize::MAX;
        }
    }
    assert!(refused(wide, weights).contains("leaves it"));
}

#[test]
fn plans_changed_after_recording_are_checked_again() {
    let (good, weights) = plan();
    let mut narrow = good.clone();
    for op in &mut narrow.recording.ops {
        if let Op::ExpertMatMul(o) = &mut op.op {
            o.out.width /= 2;
        }
    }
    assert!(refused(narrow, weights.clone()).contains("width of out"));
    let chosen = good.recording.ops.iter().find_map(|op| match &op.op {
        Op::Route(o) => Some(o.experts.tensor),
        _ => None,
    });
    let experts = chosen.unwrap();
    let mut few = good.clone();
    few.recording.tensors[experts.index()].kind = TensorKind::Indices { rows: RowKind::Logits, width: 2 };
    assert!(refused(few, weights.clone()).contains("row kind"));
    let mut twice = good.clone();
    let cache =
        twice.recording.tensors.iter().find(|t| matches!(t.kind, TensorKind::Cache(_))).unwrap().clone();
    twice.recording.tensors.push(cache);
    assert!(refused(twice, weights.clone()).contains("second tensor of its cache"));
    let mut same = good;
    for op in &mut same.recording.ops {
        match &mut op.op {
            Op::Route(o) => o.weights = o.experts,
            Op::ExpertSum(o) => o.weights = View { tensor: experts, ..o.weights },
            _ => {}
        }
    }
    assert!(refused(same, weights).contains("what one router writes, and nothing else"));
}

#[test]
fn rows_of_a_step_are_bounded() {
    let (plan, weights) = plan();
    let error = backend(1, Isa::detect()).open(Arc::new(plan), weights, &limits(usize::MAX)).map(|_| ());
    assert!(error.unwrap_err().to_string().contains("accepted are at most"));
}

#[test]
fn steps_are_checked_and_the_program_goes_on() {
    let backend = backend(2, Isa::detect());
    let mut program = open(TensorType::F32, &backend, 8);
    let wanted = program.run(&step(&[1, 2], 0), None).unwrap().to_vec();
    let error = program.run(&step(&[1, 99], 0), None).unwrap_err();
    assert!(
        matches!(error, BackendError::Step(StepError::Index { what: "the token", found: 99, .. })),
        "{error}"
    );
    assert!(matches!(program.run(&step(&[1; 9], 0), None), Err(BackendError::Step(StepError::Count { .. }))));
    let mut far = step(&[1], 0);
    far.groups[0].slots[0] = 1 << 20;
    assert!(program.run(&far, None).is_err());
    assert_eq!(program.run(&step(&[1, 2], 0), None).unwrap(), wanted);
}

#[test]
fn slots_to_move_must_exist() {
    let backend = backend(1, Isa::detect());
    let mut program = open(TensorType::F32, &backend, 8);
    let group = recording(TensorType::F32).caches[1].group;
    assert!(program.move_slots(group, &[SlotMove { from: 0, to: 255 }]).is_ok());
    let error = program.move_slots(group, &[SlotMove { from: 256, to: 0 }]).unwrap_err();
    assert!(matches!(error, BackendError::Step(StepError::Index { found: 256, bound: 256, .. })), "{error}");
}
