//! One configuration: its engine, its sequence, and what its steps show.

use std::sync::Arc;

use hf2q_engine::{Engine, LogitRows, SequenceId, Work};
use hf2q_plan::{Cache, PAGE, Plan, Span};

use super::attended::{Attended, Layer, Watch, layers};
use super::summary::CacheSize;
use crate::error::ObserveError;

/// A configuration to be compared.
pub struct Side {
    /// What it is called.
    pub name: String,
    /// One sequence at least; the context holds a chunk.
    pub engine: Engine,
    /// What the engine was opened with.
    pub plan: Arc<Plan>,
}

/// A side at work.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) engine: Engine,
    plan: Arc<Plan>,
    pub(super) layers: Vec<Layer>,
    attended: Attended,
    sequence: Option<SequenceId>,
}

/// What an observed step gave.
pub(super) struct Seen<'a> {
    pub(super) name: &'a str,
    /// `[rows, vocabulary]`.
    pub(super) values: &'a [f32],
    pub(super) layers: &'a [Layer],
    pub(super) attended: &'a Attended,
}

impl Opened {
    pub(super) fn new(side: Side) -> Self {
        let Side { name, engine, plan } = side;
        let (layers, attended) = (layers(&plan), Attended::default());
        Self { name, engine, plan, layers, attended, sequence: None }
    }

    /// Widths of the attention outputs.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.layers.iter().map(|l| l.width).collect()
    }

    /// Ends the sequence; the next step begins another one.
    pub(super) fn end(&mut self) -> Result<(), ObserveError> {
        match self.sequence.take() {
            Some(sequence) => Ok(self.engine.remove_sequence(sequence)?),
            None => Ok(()),
        }
    }

    /// Greedy runs can go on from here after the sequence has gone further.
    pub(super) fn remember(&mut self) -> Result<(), ObserveError> {
        let sequence = self.sequence()?;
        Ok(self.engine.remember(sequence)?)
    }

    /// Computes tokens whose logits nobody wants.
    pub(super) fn add(&mut self, tokens: &[u32]) -> Result<(), ObserveError> {
        let sequence = self.sequence()?;
        self.engine.step(&[Work::new(sequence, tokens, LogitRows::None)], None)?;
        Ok(())
    }

    /// Computes tokens and their logits, and looks at attention.
    pub(super) fn observed(&mut self, tokens: &[u32]) -> Result<Seen<'_>, ObserveError> {
        let sequence = self.sequence()?;
        let Self { name, engine, plan, layers, attended, .. } = self;
        attended.clear();
        let work = Work::new(sequence, tokens, LogitRows::All);
        let mut watch = Watch { plan, seen: attended };
        let values = engine.step(&[work], Some(&mut watch))?;
        match attended.hidden.take() {
            Some(op) => Err(ObserveError::Hidden { op }),
            None => Ok(Seen { name, values, layers, attended }),
        }
    }

    /// What the caches take, looked at when a sequence has `context` tokens.
    pub(super) fn cache_size(&self, context: usize) -> CacheSize {
        let recording = &self.plan.recording;
        let span = |c: &Cache| recording.groups[c.group.index()].span;
        let (recent, all): (Vec<&Cache>, Vec<&Cache>) =
            recording.caches.iter().partition(|c| matches!(span(c), Span::Pages(_)));
        let pages = |c: &Cache| span(c).most().map_or(0, |n| n as usize / PAGE);
        let fixed_bytes = recent.iter().map(|c| pages(c) * c.page_bytes()).sum();
        let held = |c: &Cache| span(c).seen(context.max(1) - 1).len();
        let vectors = |c: &Cache| 1 + usize::from(c.keys().is_some());
        let elements = |c: &Cache| vectors(c) * c.kv_heads * c.head_dim;
        let sum = |of: &dyn Fn(&Cache) -> usize| all.iter().map(|c| of(c)).sum::<usize>();
        let (bytes, seen) = (sum(&|c| held(c) * c.position_bytes()), sum(&|c| held(c) * elements(c)));
        let bits = |bytes: usize| bytes as f64 * 8.0 / seen.max(1) as f64;
        CacheSize {
            bytes_per_token: sum(&|c| c.position_bytes()) as f64,
            fixed_bytes,
            bits_per_element: bits(bytes + fixed_bytes),
            marginal_bits: bits(bytes),
        }
    }

    fn sequence(&mut self) -> Result<SequenceId, ObserveError> {
        match self.sequence {
            Some(sequence) => Ok(sequence),
            None => {
                let sequence = self.engine.add_sequence()?;
                self.sequence = Some(sequence);
                Ok(sequence)
            }
        }
    }
}
