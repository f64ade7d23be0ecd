//! A norm of whole rows whose result is only added to a residual.

use crate::op::{NormAdd, Op};

pub(super) fn rule(first: &Op, second: &Op) -> Option<Op> {
    let (Op::RmsNorm(norm), Op::Add(add)) = (first, second) else { return None };
    if norm.group != norm.x.width || add.a == add.b {
        return None;
    }
    let residual = match norm.out {
        out if out == add.b => add.a,
        out if out == add.a => add.b,
        _ => return None,
    };
    Some(Op::NormAdd(NormAdd { x: norm.x, weight: norm.weight, residual, out: add.out, eps: norm.eps }))
}
