//! What some layers of the target have made becomes one state.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_model::ModelError;
use hf2q_model::eagle3::Eagle3;
use hf2q_plan::{Backend, BackendError, Limits, Passes, Plan, Program, Row, Step};

use crate::error::EngineError;

/// Why a head's first matrix could not be prepared.
pub(super) enum Error {
    Model(ModelError),
    Backend(BackendError),
}

impl Error {
    /// As the engine says it of a drafter.
    pub(super) fn of(self, drafter: &str) -> EngineError {
        match self {
            Self::Model(error) => super::failed(drafter, error),
            Self::Backend(error) => error.into(),
        }
    }
}

/// The head's plan for it, which has no caches.
pub(super) struct Fusion {
    program: Box<dyn Program>,
    /// Most rows of a step.
    rows: usize,
    taps: usize,
    /// Values in a row of all taps.
    features: usize,
}

impl Fusion {
    pub(super) fn open(head: &Eagle3, backend: &dyn Backend, rows: usize) -> Result<Self, Error> {
        let (plan, weights, limits) = planned(head, rows)?;
        let program = backend.open(plan, weights, &limits).map_err(Error::Backend)?;
        Ok(Self { program, rows, taps: head.taps().len(), features: head.features() })
    }

    /// Bytes of weights and of activations.
    pub(super) fn needs(head: &Eagle3, backend: &dyn Backend, rows: usize) -> Result<(usize, usize), Error> {
        let (plan, weights, limits) = planned(head, rows)?;
        let bytes = weights.iter().map(|w| w.len()).sum();
        Ok((bytes, backend.memory(&plan, weights, &limits).map_err(Error::Backend)?.work))
    }

    /// Values in a row of one tap.
    fn width(&self) -> usize {
        self.features / self.taps.max(1)
    }

    /// Whether these are `count` rows of what the head reads, of each tap.
    pub(super) fn reads(&self, count: usize, features: &[Vec<f32>]) -> bool {
        features.len() == self.taps && features.iter().all(|values| values.len() == count * self.width())
    }

    /// States of `count` rows, one after another; `features` has the rows of each tap.
    pub(super) fn states(&mut self, count: usize, features: &[Vec<f32>]) -> Result<Vec<f32>, BackendError> {
        let width = self.width();
        let mut states = Vec::new();
        for first in (0..count).step_by(self.rows) {
            let range = first..(first + self.rows).min(count);
            let row = Row { sequence: 0, token: 0, position: 0, parent: None };
            let wanted = (0..range.len()).map(|i| u32::try_from(i).unwrap_or(u32::MAX)).collect();
            let of_row = |i: usize| features.iter().flat_map(move |tap| &tap[i * width..(i + 1) * width]);
            let side_by_side = range.clone().flat_map(of_row).copied().collect();
            let step = Step::new(vec![row; range.len()], Vec::new(), wanted)?.with_inputs(vec![side_by_side]);
            states.extend_from_slice(self.program.run(&step, None)?);
        }
        Ok(states)
    }
}

/// The plan with its weights, for steps of so many rows.
fn planned(head: &Eagle3, rows: usize) -> Result<(Arc<Plan>, Vec<Bytes>, Limits), Error> {
    let recording = head.record_fusion().map_err(Error::Model)?;
    let weights = head.weights_for(&recording);
    let limits = Limits { max_rows: rows, max_logit_rows: rows, pages: Vec::new() };
    Ok((Arc::new(Plan::compile(recording, Passes::ALL)), weights, limits))
}
