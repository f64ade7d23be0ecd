//! Which operations of the target give what an assistant reads.

use hf2q_plan::{Op, Recording, TensorId};

use crate::error::ModelError;

/// Names of the target's operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taps {
    /// What logits are made of: `[L, hidden]`.
    pub hidden: String,
    /// Keys and values, in the order of the assistant's sources.
    pub kv: Vec<KvTap>,
}

/// Keys and values of one layer, `[R, kv_heads · head_dim]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvTap {
    /// Rotated keys; `None`: they are formed of the values.
    pub k: Option<String>,
    /// Normalized values.
    pub v: String,
}

/// Looks them up by what they are for, so that fused plans serve as well: an operation has the name of what it writes.
pub(super) fn find(target: &Recording, layers: impl Iterator<Item = usize>) -> Result<Taps, ModelError> {
    let name = |tensor: TensorId| target.tensors[tensor.index()].name.clone();
    let missing = |what: &str| ModelError::NoTap { what: what.to_owned() };
    const NORM: &str = "output_norm";
    let norm = target.ops.iter().find(|op| op.name == NORM);
    let hidden = norm.map(|op| op.name.clone()).ok_or_else(|| missing(NORM))?;
    let of_layer = |layer: usize| {
        let store = format!("L{layer:02}.attn.kv_store");
        let found = target.ops.iter().find_map(|op| match &op.op {
            Op::KvStore(o) if op.name == store => {
                Some(KvTap { k: o.k.map(|k| name(k.tensor)), v: name(o.v.tensor) })
            }
            _ => None,
        });
        found.ok_or_else(|| missing(&store))
    };
    Ok(Taps { hidden, kv: layers.map(of_layer).collect::<Result<_, _>>()? })
}
