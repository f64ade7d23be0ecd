//! Where the time of a step goes.

mod entry;
mod measure;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hf2q_plan::{NamedOp, Observer, Plan, Roofline, StepSize, Tensors, Timed};

pub use entry::{By, Entry, Line};
pub use measure::{Workload, profile, scattered_tokens};

/// What a model does with the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reads many at a time.
    Prompt,
    /// Reads them one by one, each to predict the next.
    Decode,
}

impl Phase {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Decode => "decode",
        }
    }
}

/// Times of one phase.
#[derive(Clone, Debug)]
pub struct PhaseProfile {
    /// Which.
    pub phase: Phase,
    /// Tokens that were read with times, and as many without.
    pub tokens: usize,
    /// Steps that they took.
    pub steps: usize,
    /// What steps of the same size took that nobody looked at.
    pub unobserved: Duration,
    /// Every operation and preparation, in the order of the plan.
    pub entries: Vec<Entry>,
}

impl PhaseProfile {
    /// The sum of all operations.
    pub fn sum(&self) -> Duration {
        self.entries.iter().map(|e| e.time).sum()
    }

    /// By how much the sum of operations, run one by one, exceeds an unobserved step: 0.1 for a tenth.
    pub fn excess(&self) -> f64 {
        self.sum().as_secs_f64() / self.unobserved.as_secs_f64() - 1.0
    }

    /// Sums of operations that have something in common, the most expensive first.
    pub fn lines(&self, by: By) -> Vec<Line> {
        entry::lines(&self.entries, by)
    }

    /// One line for each operation, `decode;L07;attn;q_proj MICROSECONDS`, as tools for flame graphs take them. Times are
    /// those of all steps; what rounds to nothing is left out.
    pub fn folded(&self) -> String {
        let line = |e: &Entry| {
            let micros = e.time.as_nanos().saturating_add(500) / 1000;
            let stack = format!("{};{}", self.phase.name(), e.op.replace('.', ";"));
            let preparation = e.preparation.map(|p| format!(";{p}")).unwrap_or_default();
            (micros > 0).then(|| format!("{stack}{preparation} {micros}\n"))
        };
        self.entries.iter().filter_map(line).collect()
    }
}

/// A model's times beside what the machine can do.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What operations are measured by.
    pub roofline: Roofline,
    /// Those that had tokens.
    pub phases: Vec<PhaseProfile>,
}

/// Adds up what operations take.
pub struct Profiler {
    plan: Arc<Plan>,
    roofline: Roofline,
    size: StepSize,
    /// By place in the plan and preparation.
    sums: BTreeMap<(usize, Option<&'static str>), Entry>,
    /// Places of operations in the plan, by name.
    ops: HashMap<String, usize>,
}

impl Profiler {
    /// For programs of `plan`.
    pub fn new(plan: Arc<Plan>, roofline: Roofline) -> Self {
        let names = plan.recording.ops.iter().enumerate().map(|(i, op)| (op.name.clone(), i));
        let ops = names.collect();
        let size = StepSize { rows: 0, logit_rows: 0, held: 0 };
        Self { plan, roofline, size, sums: BTreeMap::new(), ops }
    }

    /// Says how large the next step is; operations are charged with the costs of its size.
    pub fn expect(&mut self, size: StepSize) {
        self.size = size;
    }

    /// What was measured, in the order of the plan, and nothing any more.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.sums).into_values().collect()
    }
}

impl Observer for Profiler {
    fn wants(&mut self, _op: &NamedOp) -> bool {
        false
    }

    fn after(&mut self, _op: &NamedOp, _tensors: &dyn Tensors) {}

    fn times(&mut self) -> bool {
        true
    }

    fn took(&mut self, part: &Timed<'_>) {
        let Some(&i) = self.ops.get(&part.op.name) else { return };
        let recording = &self.plan.recording;
        let new = || Entry::new(recording, part.op, part.preparation);
        let entry = self.sums.entry((i, part.preparation)).or_insert_with(new);
        entry.calls += 1;
        entry.time += part.time;
        if part.preparation.is_none() {
            let cost = recording.cost(&part.op.op, self.size);
            entry.bound += self.roofline.bound(&cost);
            entry.cost += cost;
        }
    }
}
