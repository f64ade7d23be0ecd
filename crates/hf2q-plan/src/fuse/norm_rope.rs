//! A head norm whose result is only rotated.

use crate::op::{NormRope, Op};

pub(super) fn rule(first: &Op, second: &Op) -> Option<Op> {
    let (Op::RmsNorm(norm), Op::Rope(rope)) = (first, second) else { return None };
    if norm.group != rope.head_dim || norm.out != rope.x {
        return None;
    }
    Some(Op::NormRope(NormRope {
        x: norm.x,
        weight: norm.weight,
        out: rope.out,
        head_dim: rope.head_dim,
        eps: norm.eps,
        rope: rope.rope,
    }))
}
