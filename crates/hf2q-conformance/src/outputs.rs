//! What can be read after a step is what an observer sees in it, and keeping it changes nothing.

use hf2q_plan::{Backend, NamedOp, Observer, Passes, Recording, TensorKind, Tensors};

use crate::compare::{first_difference, same_bits};
use crate::error::ConformanceError;
use crate::inputs::inputs;
use crate::random::Random;
use crate::subject::Subject;
use crate::traffic::{Traffic, TrafficOptions};

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Outputs that were compared.
    pub outputs: usize,
    /// The first difference.
    pub difference: Option<String>,
}

/// Runs the same random traffic through a fused plan, through one that keeps a third of all results, and through the plan as
/// recorded, which an observer watches.
///
/// # Errors
/// If a program fails.
pub fn check(backend: &dyn Backend, subject: &Subject, seed: u64) -> Result<Comparison, ConformanceError> {
    let options = TrafficOptions {
        vocabulary: subject.vocabulary()?,
        sequences: 2,
        max_len: 90,
        max_rows: 40,
        max_nodes: 6,
    };
    let mut random = Random::new("outputs", seed);
    let names = names(&subject.recording, &mut random);
    let mut keeping = subject.clone();
    keeping.recording.keep(&names)?;
    let first = subject.recording.outputs.len();
    let limits = Traffic::limits(&subject.recording, options);
    let mut fused = subject.open(backend, Passes::ALL, &limits)?;
    let mut kept = keeping.open(backend, Passes::ALL, &limits)?;
    let mut watched = subject.open(backend, Passes::NONE, &limits)?;
    let mut traffic = Traffic::new(&subject.recording, options, random);
    let mut found = Comparison::default();
    for turn_index in 0..6 {
        let mut turn = traffic.next()?;
        turn.step.inputs = inputs(&subject.recording, &turn.step.rows);
        let mut eye = Eye { names: &names, seen: vec![vec![]; names.len()] };
        let expected = turn.run(&mut *fused, None)?;
        let logits = turn.run(&mut *kept, None)?;
        turn.run(&mut *watched, Some(&mut eye))?;
        let mut compare = |what: &str, found_values: &[f32], expected: &[f32]| {
            if found.difference.is_none() && !same_bits(found_values, expected) {
                let why = first_difference(found_values, expected);
                found.difference = Some(format!("step {turn_index}, {what}: {why}"));
            }
        };
        compare("logits", &logits, &expected);
        for (i, (name, seen)) in names.iter().zip(&eye.seen).enumerate() {
            compare(name, &kept.output(first + i)?, seen);
        }
        found.outputs += names.len();
    }
    Ok(found)
}

/// A third of the operations that write an activation, and nothing else.
fn names(recording: &Recording, random: &mut Random) -> Vec<String> {
    let writes_one = |op: &&NamedOp| {
        let writes = op.op.access().writes;
        let is_activation = |&t: &hf2q_plan::TensorId| {
            matches!(recording.tensors[t.index()].kind, TensorKind::Activation { .. })
        };
        writes.len() == 1 && writes.iter().all(is_activation)
    };
    let ops = recording.ops.iter().filter(writes_one);
    ops.filter(|_| random.chance(33)).map(|op| op.name.clone()).collect()
}

struct Eye<'a> {
    names: &'a [String],
    seen: Vec<Vec<f32>>,
}

impl Observer for Eye<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.names.contains(&op.name)
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let at = self.names.iter().position(|name| *name == op.name);
        let values = op.op.access().writes.first().and_then(|&t| tensors.values(t));
        if let (Some(at), Some(values)) = (at, values) {
            self.seen[at] = values;
        }
    }
}
