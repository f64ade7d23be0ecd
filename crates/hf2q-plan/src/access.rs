//! What each operation reads and writes, taken from its own fields.

use crate::op::Op;
use crate::tensor::{TensorId, View};

/// What an operation touches; hazards, waves and the arena are computed from this alone. Step inputs (tokens,
/// positions, page tables, inputs) are constant while a step runs and are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Tensors the operation reads.
    pub reads: Vec<TensorId>,
    /// Tensors the operation writes.
    pub writes: Vec<TensorId>,
}

fn access<const N: usize>(reads: [Option<TensorId>; N], writes: &[TensorId]) -> Access {
    Access { reads: reads.into_iter().flatten().collect(), writes: writes.to_vec() }
}

impl Op {
    /// Exhaustive on purpose: a new operation does not compile until it declares its accesses.
    pub fn access(&self) -> Access {
        match self {
            Self::Embed(o) => access([Some(o.table)], &[o.out.tensor]),
            Self::Input(o) => access([], &[o.out.tensor]),
            Self::RmsNorm(o) => access([Some(o.x.tensor), o.weight], &[o.out.tensor]),
            Self::MatMul(o) => access([Some(o.x.tensor), Some(o.weight)], &[o.out.tensor]),
            Self::Rope(o) => access([Some(o.x.tensor), o.rope.factors], &[o.out.tensor]),
            // A scatter keeps the other slots, so the cache is read as well as written.
            Self::KvStore(o) => {
                access([o.k.map(|k| k.tensor), Some(o.v.tensor), Some(o.cache_tensor)], &[o.cache_tensor])
            }
            Self::Attention(o) => {
                let (weight, factors) = o.formed_keys.map_or((None, None), |k| (k.weight, k.rope.factors));
                let recent = o.recent.map(|(_, tensor)| tensor);
                access([Some(o.q.tensor), Some(o.cache_tensor), recent, weight, factors], &[o.out.tensor])
            }
            Self::Add(o) => access([Some(o.a.tensor), Some(o.b.tensor)], &[o.out.tensor]),
            Self::Scale(o) => access([Some(o.x.tensor), o.by], &[o.out.tensor]),
            Self::SoftCap(o) => access([Some(o.x.tensor)], &[o.out.tensor]),
            Self::Glu(o) => access([Some(o.gate.tensor), Some(o.up.tensor)], &[o.out.tensor]),
            Self::Route(o) => {
                access([Some(o.logits.tensor), o.expert_scale], &[o.experts.tensor, o.weights.tensor])
            }
            Self::ExpertMatMul(o) => {
                access([Some(o.x.tensor), Some(o.experts.tensor), Some(o.weight)], &[o.out.tensor])
            }
            Self::ExpertSum(o) => access([Some(o.x.tensor), Some(o.weights.tensor)], &[o.out.tensor]),
            Self::SelectRows(o) => access([Some(o.x.tensor)], &[o.out.tensor]),
            Self::NormAdd(o) => {
                access([Some(o.x.tensor), o.weight, Some(o.residual.tensor)], &[o.out.tensor])
            }
            Self::NormRope(o) => access([Some(o.x.tensor), o.weight, o.rope.factors], &[o.out.tensor]),
        }
    }

    /// Views of activations that the operation names; those of [`Op::Glu`] as wide as all its groups.
    pub fn views(&self) -> Vec<View> {
        match self {
            Self::Embed(o) => vec![o.out],
            Self::Input(o) => vec![o.out],
            Self::RmsNorm(o) => vec![o.x, o.out],
            Self::MatMul(o) => vec![o.x, o.out],
            Self::Rope(o) => vec![o.x, o.out],
            Self::KvStore(o) => o.k.into_iter().chain([o.v]).collect(),
            Self::Attention(o) => vec![o.q, o.out],
            Self::Add(o) => vec![o.a, o.b, o.out],
            Self::Scale(o) => vec![o.x, o.out],
            Self::SoftCap(o) => vec![o.x, o.out],
            Self::Glu(o) => {
                let others = o.groups.saturating_sub(1).saturating_mul(o.stride);
                let wide = |v: View| View { width: others.saturating_add(v.width), ..v };
                vec![wide(o.gate), wide(o.up), o.out]
            }
            Self::Route(o) => vec![o.logits, o.experts, o.weights],
            Self::ExpertMatMul(o) => vec![o.x, o.experts, o.out],
            Self::ExpertSum(o) => vec![o.x, o.weights, o.out],
            Self::SelectRows(o) => vec![o.x, o.out],
            Self::NormAdd(o) => vec![o.x, o.residual, o.out],
            Self::NormRope(o) => vec![o.x, o.out],
        }
    }
}
