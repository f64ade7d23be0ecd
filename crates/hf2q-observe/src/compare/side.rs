//! One configuration: its engine, its sequence, and what its steps show.

use std::sync::Arc;

use hf2q_engine::{Engine, LogitRows, SequenceId, Work};
use hf2q_plan::{PAGE, Plan};

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

    /// Begins a sequence; one that an earlier failure left is given up.
    pub(super) fn start(&mut self) -> Result<(), ObserveError> {
        self.end()?;
        self.sequence = Some(self.engine.add_sequence()?);
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), ObserveError> {
        match self.sequence.take() {
            Some(sequence) => Ok(self.engine.remove_sequence(sequence)?),
            None => Ok(()),
        }
    }

    /// Greedy runs can go on from here after the sequence has gone further.
    pub(super) fn remember(&mut self) -> Result<(), ObserveError> {
        match self.sequence {
            Some(sequence) => Ok(self.engine.remember(sequence)?),
            None => Ok(()),
        }
    }

    /// Computes tokens whose logits nobody wants.
    pub(super) fn add(&mut self, tokens: &[u32]) -> Result<(), ObserveError> {
        let sequence = self.sequence()?;
        self.engine.step(&[Work { sequence, tokens, logits: LogitRows::None }], None)?;
        Ok(())
    }

    /// Computes tokens and their logits, and looks at attention.
    pub(super) fn observed(&mut self, tokens: &[u32]) -> Result<Seen<'_>, ObserveError> {
        let sequence = self.sequence()?;
        let Self { name, engine, plan, layers, attended, .. } = self;
        attended.clear();
        let work = Work { sequence, tokens, logits: LogitRows::All };
        let mut watch = Watch { plan, seen: attended };
        let values = engine.step(&[work], Some(&mut watch))?;
        match attended.hidden.take() {
            Some(op) => Err(ObserveError::Hidden { op }),
            None => Ok(Seen { name, values, layers, attended }),
        }
    }

    pub(super) fn cache_size(&self) -> CacheSize {
        let caches = &self.plan.recording.caches;
        let bytes: usize = caches.iter().map(|c| c.page_bytes()).sum();
        let elements: usize = caches.iter().map(|c| 2 * PAGE * c.kv_heads * c.head_dim).sum();
        CacheSize {
            bytes_per_token: bytes as f64 / PAGE as f64,
            bits_per_element: bytes as f64 * 8.0 / elements.max(1) as f64,
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
