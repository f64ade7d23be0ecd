//! Results that are kept for after the step.

use hf2q_conformance::{Subject, outputs};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_model::{RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat, Passes, Plan, SelectError};
use hf2q_reference::ReferenceBackend;

#[test]
fn kept_results_are_those_that_observers_see() {
    let cpu = CpuBackend::new(CpuOptions { threads: 3, isa: None }).unwrap();
    let backends: [&dyn Backend; 2] = [&ReferenceBackend, &cpu];
    for (name, model) in toy::all(3) {
        let Ok(subject) = Subject::of_model(&model, &RecordOptions::uniform(KvFormat::F16)) else { continue };
        for backend in backends {
            let found = outputs::check(backend, &subject, 7).unwrap();
            assert_eq!(found.difference, None, "{name} on {}", backend.name());
            assert!(found.outputs > 50, "{name}");
        }
    }
}

#[test]
fn what_is_kept_is_not_fused_away_and_must_be_an_activation() {
    let (_, model) = toy::all(1).swap_remove(0);
    let plain = model.record(&RecordOptions::default()).unwrap();
    let fused = Plan::compile(plain.clone(), Passes::ALL);
    let has = |plan: &Plan, name: &str| plan.recording.ops.iter().any(|op| op.name == name);
    let lost = plain.ops.iter().find(|op| !has(&fused, &op.name)).unwrap().name.clone();
    let mut recording = plain.clone();
    recording.keep(&[&lost]).unwrap();
    assert!(has(&Plan::compile(recording, Passes::ALL), &lost), "{lost}");
    let refused = |name: &str| plain.clone().keep(&[name]).unwrap_err();
    assert!(
        matches!(refused("L00.attn.kv_store"), SelectError::NoOutput { .. }),
        "{}",
        refused("L00.attn.kv_store")
    );
    assert!(refused("L00.atn.norm").to_string().contains("L00.attn.norm"));
}
