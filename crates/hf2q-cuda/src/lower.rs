//! One operation becomes one call.

use hf2q_plan::{BackendError, NamedOp, Op};

use crate::compile::Compiler;
use crate::launch::{Call, elementwise, mat_mul};

/// Prepares an operation, and what it needs beforehand.
pub(crate) fn lower(c: &mut Compiler<'_>, op: &NamedOp) -> Result<Box<dyn Call>, BackendError> {
    match &op.op {
        Op::MatMul(o) => mat_mul::mat_mul(c, op, o),
        Op::ExpertMatMul(o) => mat_mul::expert_mat_mul(c, op, o),
        Op::Add(o) => elementwise::add(c, o),
        Op::Scale(o) => elementwise::scale(c, o),
        Op::SoftCap(o) => elementwise::soft_cap(c, o),
        _ => Err(Compiler::unsupported(op, "there is no kernel for it yet".to_owned())),
    }
}
