//! Any operation can be left out but routing, and what is left runs.

use std::sync::Arc;

use hf2q_engine::{CacheOptions, Engine, EngineOptions, LogitRows, Work};
use hf2q_model::{RecordOptions, toy};
use hf2q_plan::{Backend, Passes, Plan, SelectError};
use hf2q_reference::ReferenceBackend;

use crate::support::{cpu, tokens};

const OPTIONS: EngineOptions = EngineOptions {
    context: 32,
    sequences: 1,
    rows: 16,
    logit_rows: 1,
    cache: CacheOptions {
        budget: hf2q_engine::Budget::Sequences,
        windows: hf2q_engine::WindowPolicy::Drop { ends: 0 },
    },
};

#[test]
fn what_is_left_runs() {
    let cpu = cpu(2);
    for (name, model) in toy::all(3) {
        let whole = Plan::compile(model.record(&RecordOptions::default()).unwrap(), Passes::ALL);
        let mut names: Vec<String> = whole.recording.ops.iter().map(|op| op.name.clone()).collect();
        // All that can go at once, too.
        names.extend(["L0?.attn.*".to_owned(), "L0?.ffn.*".to_owned()]);
        for skip in &names {
            let (plan, skipped) = match whole.clone().without(std::slice::from_ref(skip)) {
                Err(SelectError::Routing { op }) => {
                    assert!(op.ends_with(".route"), "{name}: {op}");
                    continue;
                }
                other => other.unwrap(),
            };
            assert!(!skipped.is_empty());
            let plan = Arc::new(plan);
            for backend in [&cpu as &dyn Backend, &ReferenceBackend] {
                let weights = model.weights_for(&plan.recording);
                let mut engine = Engine::open(backend, Arc::clone(&plan), weights, OPTIONS).unwrap();
                let sequence = engine.add_sequence().unwrap();
                for chunk in tokens(18).chunks(16) {
                    let work = Work::new(sequence, chunk, LogitRows::Last);
                    let logits = engine.step(&[work], None).unwrap();
                    assert_eq!(logits.len(), whole.recording.logits.width, "{name} without {skip}");
                }
            }
        }
    }
}
