//! Matrix products.

use hf2q_plan::{BackendError, ExpertMatMul, MatMul, NamedOp, TensorId};

use super::Call;
use crate::compile::Compiler;
use crate::sources::Variant;

pub(super) fn variants() -> Vec<Variant> {
    Vec::new()
}

/// Quantized activations that are up to date.
#[derive(Default)]
pub(crate) struct Quantized {}

impl Quantized {
    /// Called after the wave that writes an activation.
    pub(crate) fn forget(&mut self, _written: TensorId) {}
}

/// Prepares a product; what must run before it is given to [`Compiler::before`].
pub(crate) fn mat_mul(c: &mut Compiler<'_>, op: &NamedOp, o: &MatMul) -> Result<Box<dyn Call>, BackendError> {
    let ty = c.recording.weight(o.weight).ty;
    Err(Compiler::unsupported(op, format!("there is no product with weights of type {ty} yet")))
}

/// Prepares a product with chosen experts.
pub(crate) fn expert_mat_mul(
    c: &mut Compiler<'_>,
    op: &NamedOp,
    o: &ExpertMatMul,
) -> Result<Box<dyn Call>, BackendError> {
    let ty = c.recording.weight(o.weight).ty;
    Err(Compiler::unsupported(op, format!("there is no product with weights of type {ty} yet")))
}
