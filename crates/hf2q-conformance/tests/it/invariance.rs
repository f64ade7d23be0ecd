//! The reference holds the rule, and a backend that breaks it is found.

use std::sync::Arc;

use hf2q_conformance::Subject;
use hf2q_conformance::invariance::{self, Options};
use hf2q_gguf::Bytes;
use hf2q_model::{RecordOptions, toy};
use hf2q_plan::{Backend, BackendError, GroupId, KvFormat, Limits, Observer, Plan, Program, SlotMove, Step};
use hf2q_reference::ReferenceBackend;

fn options(seed: u64) -> Options {
    Options { seed, turns: 14, sequences: 2, ..Options::default() }
}

#[test]
fn the_reference_holds_the_rule_on_toy_models() {
    for (seed, (name, model)) in toy::all(1).into_iter().enumerate() {
        let subject = Subject::of_model(&model, &RecordOptions::uniform(KvFormat::F16)).unwrap();
        let found =
            invariance::check(&ReferenceBackend, &[&ReferenceBackend], &subject, options(seed as u64))
                .unwrap();
        assert_eq!(found.violations, [""; 0], "{name}");
        assert!(found.rows > 50 && found.drafted > 0, "{name}: {found:?}");
    }
}

/// What a faulty backend does wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Logits of steps of several rows differ in one bit.
    Batch,
    /// Draft trees are read as chunks: paths are forgotten.
    Paths,
    /// Accepted drafts stay where they are.
    Moves,
}

struct Faulty(Fault);

struct FaultyProgram {
    inner: Box<dyn Program>,
    fault: Fault,
    logits: Vec<f32>,
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn describe(&self) -> String {
        format!("{:?}", self.0)
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let inner = ReferenceBackend.open(plan, weights, limits)?;
        Ok(Box::new(FaultyProgram { inner, fault: self.0, logits: vec![] }))
    }
}

impl Program for FaultyProgram {
    fn run(&mut self, step: &Step, observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        let mut step = step.clone();
        if matches!(self.fault, Fault::Paths) {
            for (base, row) in step.tree_base.iter_mut().zip(&step.rows) {
                *base = row.position + 1;
            }
        }
        self.logits = self.inner.run(&step, observer)?.to_vec();
        if let (Fault::Batch, [first, ..]) = (self.fault, &mut self.logits[..])
            && step.len() > 1
        {
            *first = f32::from_bits(first.to_bits() ^ 1);
        }
        Ok(&self.logits)
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        self.inner.output(index)
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        match self.fault {
            Fault::Moves => Ok(()),
            _ => self.inner.move_slots(group, moves),
        }
    }
}

#[test]
fn backends_that_break_the_rule_are_found() {
    let (_, model) = toy::all(1).swap_remove(0);
    let subject = Subject::of_model(&model, &RecordOptions::uniform(KvFormat::F32)).unwrap();
    let faulty = [Fault::Batch, Fault::Paths, Fault::Moves].map(Faulty);
    for backend in &faulty {
        match invariance::check(&ReferenceBackend, &[backend], &subject, options(9)) {
            Ok(found) => assert_eq!(found.violations.len(), 1, "{}", backend.describe()),
            // A forgotten path can reach a page that was never given: that is an error, not a violation.
            Err(e) => assert!(matches!(backend.0, Fault::Paths), "{}: {e}", backend.describe()),
        }
    }
}
