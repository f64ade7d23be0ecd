//! Opening a plan: weights are dequantized once.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, BackendError, Limits, Plan, Program, Recording, TensorId};

use crate::cache::CacheData;
use crate::memory::Memory;
use crate::program::ReferenceProgram;

pub(crate) const NAME: &str = "reference";

/// Runs plans with plain loops, one operation after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        "reference: scalar loops, f32 storage, f64 sums, one thread".to_owned()
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let recording = &plan.recording;
        if weights.len() != recording.weights.len() {
            let why = format!("{} weights given, the plan has {}", weights.len(), recording.weights.len());
            return Err(BackendError::Failed { backend: NAME, why });
        }
        if limits.pages.len() != recording.groups.len() {
            let why = format!(
                "pages of {} groups given, the plan has {}",
                limits.pages.len(),
                recording.groups.len()
            );
            return Err(BackendError::Failed { backend: NAME, why });
        }
        let mut memory = Memory::new(recording)?;
        for (&id, bytes) in recording.weights.iter().zip(&weights) {
            memory.set_weight(id, dequantize(recording, id, bytes)?);
        }
        let caches = recording
            .caches
            .iter()
            .map(|c| CacheData::new(c, limits.pages[c.group.index()]))
            .collect::<Result<Vec<_>, _>>()?;
        let vocabulary = recording.vocabulary().unwrap_or(usize::MAX);
        Ok(Box::new(ReferenceProgram {
            plan,
            limits: limits.clone(),
            vocabulary,
            memory,
            caches,
            logits: vec![],
        }))
    }
}

fn dequantize(recording: &Recording, id: TensorId, bytes: &Bytes) -> Result<Vec<f32>, BackendError> {
    let weight = recording.weight(id);
    let name = &recording.tensors[id.index()].name;
    let expected = weight
        .ty
        .row_bytes(weight.cols)
        .and_then(|b| b.checked_mul(weight.rows)?.checked_mul(weight.experts))
        .unwrap_or(usize::MAX);
    if bytes.len() != expected {
        return Err(BackendError::WeightSize { name: name.clone(), found: bytes.len(), expected });
    }
    let mut values = allocate(name, weight.cols * weight.rows * weight.experts, 0.0)?;
    hf2q_quant::dequantize(weight.ty, bytes, &mut values).map_err(|e| BackendError::Unsupported {
        backend: NAME,
        op: name.clone(),
        why: e.to_string(),
    })?;
    Ok(values)
}

/// `len` values, or an error that says what they were for.
pub(crate) fn allocate(what: &str, len: usize, fill: f32) -> Result<Vec<f32>, BackendError> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| BackendError::OutOfMemory {
        what: what.to_owned(),
        bytes: len.saturating_mul(size_of::<f32>()),
    })?;
    values.resize(len, fill);
    Ok(values)
}
