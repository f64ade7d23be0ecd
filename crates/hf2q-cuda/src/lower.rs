//! One operation becomes one call.

use hf2q_plan::{BackendError, NamedOp, Op};

use crate::compile::Compiler;
use crate::launch::{Call, attention, elementwise, kv, mat_mul, norm, route, rows};

/// Prepares an operation, and what it needs beforehand.
pub(crate) fn lower(c: &mut Compiler<'_>, op: &NamedOp) -> Result<Box<dyn Call>, BackendError> {
    match &op.op {
        Op::Embed(o) => rows::embed(c, op, o),
        Op::Input(o) => rows::input(c, o),
        Op::RmsNorm(o) => norm::rms_norm(c, o),
        Op::NormAdd(o) => norm::norm_add(c, o),
        Op::NormRope(o) => norm::norm_rope(c, o),
        Op::Rope(o) => norm::rope(c, o),
        Op::MatMul(o) => mat_mul::mat_mul(c, op, o),
        Op::ExpertMatMul(o) => mat_mul::expert_mat_mul(c, op, o),
        Op::KvStore(o) => kv::kv_store(c, o),
        Op::Attention(o) => attention::attention(c, op, o),
        Op::Add(o) => elementwise::add(c, o),
        Op::Scale(o) => elementwise::scale(c, o),
        Op::SoftCap(o) => elementwise::soft_cap(c, o),
        Op::Glu(o) => rows::glu(c, o),
        Op::Route(o) => route::route(c, op, o),
        Op::ExpertSum(o) => rows::expert_sum(c, o),
        Op::SelectRows(o) => rows::select_rows(c, o),
    }
}
