//! What the safety of shared memory rests on is checked here, whoever made the plan.

use std::collections::HashSet;

use hf2q_gguf::Bytes;
use hf2q_plan::{BackendError, Limits, Op, PAGE, Plan, Recording, TensorId, TensorKind, View};

use crate::backend::NAME;
use crate::simd::LANES;

fn failed(why: String) -> BackendError {
    BackendError::Failed { backend: NAME, why }
}

/// Most rows of a step: sizes of activations cannot overflow below it.
const MAX_ROWS: usize = 1 << 20;

/// Limits fit the groups, weights have the sizes of their types and shapes, operands of operations fit together, waves
/// have no hazards, views lie within their tensors, and caches have a size.
pub(crate) fn validate(plan: &Plan, weights: &[Bytes], limits: &Limits) -> Result<(), BackendError> {
    let recording = &plan.recording;
    let groups = recording.groups.len();
    if limits.pages.len() != groups {
        return Err(failed(format!("pages given for {} groups, the plan has {groups}", limits.pages.len())));
    }
    for (what, rows) in [("rows", limits.max_rows), ("logit rows", limits.max_logit_rows)] {
        if rows > MAX_ROWS {
            return Err(failed(format!("{rows} {what} a step asked for, accepted are at most {MAX_ROWS}")));
        }
    }
    let expected = recording.weights.len();
    if weights.len() != expected {
        return Err(failed(format!("{} weights given, the plan has {expected}", weights.len())));
    }
    for (&id, bytes) in recording.weights.iter().zip(weights) {
        weight(recording, id, bytes)?;
    }
    recording.check().map_err(|error| failed(error.to_string()))?;
    caches(recording)?;
    waves(plan)?;
    let inside = |v: View| {
        let width = recording.activation(v.tensor).map_or(0, |(_, width)| width);
        v.offset.checked_add(v.width).is_some_and(|end| end <= width)
    };
    for op in &recording.ops {
        if let Some(v) = views(&op.op).into_iter().find(|&v| !inside(v)) {
            let name = &recording.tensors[v.tensor.index()].name;
            return Err(failed(format!("operation {}: a view of {name} leaves it", op.name)));
        }
    }
    if inside(recording.logits) {
        Ok(())
    } else {
        Err(failed("the logits' view leaves its tensor".to_owned()))
    }
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

fn weight(recording: &Recording, id: TensorId, bytes: &Bytes) -> Result<(), BackendError> {
    let TensorKind::Weight(w) = &recording.tensors[id.index()].kind else {
        return Err(failed(format!("{} is no weight", recording.tensors[id.index()].name)));
    };
    let size = w.ty.row_bytes(w.cols).and_then(|n| n.checked_mul(w.rows)?.checked_mul(w.experts));
    match size {
        Some(expected) if expected == bytes.len() => Ok(()),
        _ => {
            let name = recording.tensors[id.index()].name.clone();
            Err(BackendError::WeightSize { name, found: bytes.len(), expected: size.unwrap_or(usize::MAX) })
        }
    }
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

/// Views of activations that an operation names; those of [`Op::Glu`] as wide as all its groups.
fn views(op: &Op) -> Vec<View> {
    match op {
        Op::Embed(o) => vec![o.out],
        Op::RmsNorm(o) => vec![o.x, o.out],
        Op::MatMul(o) => vec![o.x, o.out],
        Op::Rope(o) => vec![o.x, o.out],
        Op::KvStore(o) => o.k.into_iter().chain([o.v]).collect(),
        Op::Attention(o) => vec![o.q, o.out],
        Op::Add(o) => vec![o.a, o.b, o.out],
        Op::Scale(o) => vec![o.x, o.out],
        Op::SoftCap(o) => vec![o.x, o.out],
        Op::Glu(o) => {
            let others = o.groups.saturating_sub(1).saturating_mul(o.stride);
            let wide = |v: View| View { width: others.saturating_add(v.width), ..v };
            vec![wide(o.gate), wide(o.up), o.out]
        }
        Op::Route(o) => vec![o.logits, o.experts, o.weights],
        Op::ExpertMatMul(o) => vec![o.x, o.experts, o.out],
        Op::ExpertSum(o) => vec![o.x, o.weights, o.out],
        Op::SelectRows(o) => vec![o.x, o.out],
        Op::NormAdd(o) => vec![o.x, o.residual, o.out],
        Op::NormRope(o) => vec![o.x, o.out],
    }
}
