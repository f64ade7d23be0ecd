//! The matrix products inside an operation, for those who look at what a matrix is multiplied with.

use crate::op::{ExpertInput, Op};
use crate::tensor::{TensorId, View};

/// Rows of an activation that are multiplied with a matrix, or with chosen matrices of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// `[rows, n_in]`, or `[rows, top_k · n_in]` where each chosen expert has an input of its own.
    pub x: View,
    /// `[n_out, n_in]`, or `[experts, n_out, n_in]`.
    pub weight: TensorId,
    /// i32 `[rows, top_k]` and how `x` is read; `None`: one matrix for all rows.
    pub experts: Option<(View, ExpertInput)>,
}

impl Op {
    /// The products of an operation. Their inputs are activations, so an observer can read them after the wave,
    /// whatever was fused: a rule that hid one would have nothing to declare here.
    ///
    /// Exhaustive on purpose: a new operation does not compile until it declares its products.
    pub fn products(&self) -> Vec<Product> {
        match self {
            Self::MatMul(o) => vec![Product { x: o.x, weight: o.weight, experts: None }],
            Self::ExpertMatMul(o) => {
                vec![Product { x: o.x, weight: o.weight, experts: Some((o.experts, o.input)) }]
            }
            Self::Embed(_)
            | Self::Input(_)
            | Self::RmsNorm(_)
            | Self::Rope(_)
            | Self::KvStore(_)
            | Self::Attention(_)
            | Self::Add(_)
            | Self::Scale(_)
            | Self::SoftCap(_)
            | Self::Glu(_)
            | Self::Route(_)
            | Self::ExpertSum(_)
            | Self::SelectRows(_)
            | Self::NormAdd(_)
            | Self::NormRope(_) => Vec::new(),
        }
    }
}
