//! Looks at what is behind the last norm.

use hf2q_plan::{NamedOp, Observer, Tensors};

use crate::engine::LAST_HIDDEN;

/// Keeps hidden states `[L, width]` of the rows of a step whose logits are wanted.
#[derive(Default)]
pub(super) struct Hidden {
    pub(super) values: Vec<f32>,
}

impl Observer for Hidden {
    fn wants(&mut self, op: &NamedOp) -> bool {
        op.name == LAST_HIDDEN
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let written = op.op.access().writes;
        self.values = written.first().and_then(|&id| tensors.values(id)).unwrap_or_default();
    }
}
