//! What the safety of shared memory rests on is checked here, whoever made the plan.

use std::collections::HashSet;

use hf2q_gguf::Bytes;
use hf2q_plan::{BackendError, Limits, PAGE, Plan, Recording, TensorId, TensorKind};

use crate::backend::NAME;
use crate::simd::LANES;

fn failed(why: String) -> BackendError {
    BackendError::Failed { backend: NAME, why }
}

/// Limits fit the groups, weights have the sizes of their types and shapes, operands of operations fit together, waves
/// have no hazards, views lie within their tensors, and caches have a size.
pub(crate) fn validate(plan: &Plan, weights: &[Bytes], limits: &Limits) -> Result<(), BackendError> {
    let recording = &plan.recording;
    recording.check_open(NAME, weights, limits)?;
    caches(recording)?;
    waves(plan)
}

/// Sizes, and one tensor for each cache, so that what touches it meets in its accesses.
fn caches(recording: &Recording) -> Result<(), BackendError> {
    for cache in &recording.caches {
        let values = cache.kv_heads.checked_mul(cache.head_dim.next_multiple_of(LANES));
        let page = values.and_then(|n| n.checked_mul(2 * PAGE * size_of::<f32>()));
        let is_empty = cache.kv_heads == 0 || cache.head_dim == 0;
        if cache.group.index() >= recording.groups.len() || is_empty || page.is_none() {
            return Err(failed(format!(
                "the cache {} has no group, no width or too many values",
                cache.name
            )));
        }
    }
    let mut named = HashSet::new();
    for tensor in &recording.tensors {
        if let TensorKind::Cache(id) = tensor.kind
            && !named.insert(id)
        {
            return Err(failed(format!("{} is the second tensor of its cache", tensor.name)));
        }
    }
    Ok(())
}

/// Every operation is in one wave, and none touches what another of its wave writes, reads what it writes itself (a
/// cache excepted), or writes one tensor twice.
fn waves(plan: &Plan) -> Result<(), BackendError> {
    let ops = &plan.recording.ops;
    let mut next = 0;
    for wave in &plan.waves {
        if wave.start != next || wave.end < wave.start || wave.end > ops.len() {
            return Err(failed("the waves do not cover the operations in order".to_owned()));
        }
        next = wave.end;
        let mut read = HashSet::new();
        let mut written = HashSet::new();
        for op in &ops[wave.clone()] {
            let access = op.op.access();
            let is_activation = |t: &&TensorId| plan.recording.activation(**t).is_some();
            let own = access.writes.iter().filter(is_activation).any(|t| access.reads.contains(t))
                || access.writes.iter().collect::<HashSet<_>>().len() < access.writes.len();
            let others = access.writes.iter().any(|t| read.contains(t) || written.contains(t))
                || access.reads.iter().any(|t| written.contains(t));
            if own || others {
                return Err(failed(format!("operation {} meets a write of its own wave", op.name)));
            }
            read.extend(access.reads);
            written.extend(access.writes);
        }
    }
    if next == ops.len() { Ok(()) } else { Err(failed("some operations are in no wave".to_owned())) }
}
