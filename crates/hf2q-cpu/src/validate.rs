//! What the safety of shared memory rests on is checked here, whoever made the plan.

use std::collections::HashSet;

use hf2q_gguf::Bytes;
use hf2q_plan::{BackendError, KvFormat, Limits, Op, Plan, Recording, TensorId, TensorKind, View};

use crate::backend::NAME;

fn failed(why: String) -> BackendError {
    BackendError::Failed { backend: NAME, why }
}

/// Weights have the sizes of their types and shapes, limits fit the groups, waves have no hazards, views lie within
/// their tensors, and caches have a format that kernels know.
pub(crate) fn validate(plan: &Plan, weights: &[Bytes], limits: &Limits) -> Result<(), BackendError> {
    let recording = &plan.recording;
    let groups = recording.groups.len();
    if limits.pages.len() != groups {
        return Err(failed(format!("pages given for {} groups, the plan has {groups}", limits.pages.len())));
    }
    let expected = recording.weights.len();
    if weights.len() != expected {
        return Err(failed(format!("{} weights given, the plan has {expected}", weights.len())));
    }
    for (&id, bytes) in recording.weights.iter().zip(weights) {
        weight(recording, id, bytes)?;
    }
    for cache in &recording.caches {
        if !matches!(
            (cache.k_format, cache.v_format),
            (KvFormat::F32 | KvFormat::F16, KvFormat::F32 | KvFormat::F16)
        ) {
            let why = format!(
                "a cache of {} and {}; f32 and f16 are",
                cache.k_format.name(),
                cache.v_format.name()
            );
            return Err(BackendError::Unsupported { backend: NAME, op: cache.name.clone(), why });
        }
        if cache.group.index() >= groups || cache.kv_heads == 0 || cache.head_dim == 0 {
            return Err(failed(format!("the cache {} has no group, heads or width", cache.name)));
        }
    }
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

/// Every operation is in one wave, and none touches what another of its wave writes, or reads what it writes itself
/// (a cache excepted).
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
            let own = access.writes.iter().filter(is_activation).any(|t| access.reads.contains(t));
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
        Op::KvStore(o) => vec![o.k, o.v],
        Op::Attention(o) => vec![o.q, o.out],
        Op::Add(o) => vec![o.a, o.b, o.out],
        Op::Scale(o) => vec![o.x, o.out],
        Op::SoftCap(o) => vec![o.x, o.out],
        Op::Glu(o) => {
            let wide = |v: View| View { width: o.groups.saturating_sub(1) * o.stride + v.width, ..v };
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
