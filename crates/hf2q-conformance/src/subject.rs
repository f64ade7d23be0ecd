//! A recording with its weights, under test.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, Limits, Passes, Plan, Program, Recording};

use crate::error::ConformanceError;

/// What a model recorded, and the bytes of [`Recording::weights`].
#[derive(Clone, Debug)]
pub struct Subject {
    /// The recording, before fusion.
    pub recording: Recording,
    /// In the recording's order.
    pub weights: Vec<Bytes>,
}

impl Subject {
    /// Records a model.
    ///
    /// # Errors
    /// If it cannot be recorded so.
    pub fn of_model(model: &Model, options: &RecordOptions) -> Result<Self, ConformanceError> {
        let recording = model.record(options)?;
        let weights = model.weights_for(&recording);
        Ok(Self { recording, weights })
    }

    /// Tokens that every embedding has a row for.
    pub(crate) fn vocabulary(&self) -> Result<usize, ConformanceError> {
        self.recording.vocabulary().ok_or(ConformanceError::NoEmbedding)
    }

    /// Compiles and opens it.
    pub(crate) fn open(
        &self,
        backend: &dyn Backend,
        passes: Passes,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, ConformanceError> {
        let plan = Arc::new(Plan::compile(self.recording.clone(), passes));
        Ok(backend.open(plan, self.weights.clone(), limits)?)
    }
}
