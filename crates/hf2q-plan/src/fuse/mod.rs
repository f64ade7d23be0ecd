//! Rewrites of neighbouring operations into one. Each rule is a file; a model never mentions them.

mod norm_add;
mod norm_rope;

use crate::op::Op;
use crate::plan::{NamedOp, Recording};
use crate::tensor::TensorId;

/// Which rules a plan gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Fold a residual add into the norm before it.
    pub norm_add: bool,
    /// Fold the rotation into the head norm before it.
    pub norm_rope: bool,
}

impl Passes {
    /// Every rule.
    pub const ALL: Self = Self { norm_add: true, norm_rope: true };
    /// The plan as the model recorded it; what every fusion test compares with.
    pub const NONE: Self = Self { norm_add: false, norm_rope: false };
}

/// Two operations that a rule can merge: `first` has one output, which `second` alone reads.
type Rule = fn(first: &Op, second: &Op) -> Option<Op>;

pub(crate) fn fuse(recording: &mut Recording, passes: Passes) {
    let rules: [(bool, Rule); 2] = [(passes.norm_add, norm_add::rule), (passes.norm_rope, norm_rope::rule)];
    for (_, rule) in rules.into_iter().filter(|(on, _)| *on) {
        apply(recording, rule);
    }
}

fn apply(recording: &mut Recording, rule: Rule) {
    let mut ops: Vec<Option<NamedOp>> = std::mem::take(&mut recording.ops).into_iter().map(Some).collect();
    for i in 0..ops.len() {
        let Some(second) = sole_reader(&ops, |t| recording.is_kept(t), i) else { continue };
        let (Some(a), Some(b)) = (&ops[i], &ops[second]) else { continue };
        if let Some(op) = rule(&a.op, &b.op) {
            // The result stands where the second stood: its inputs exist there, and it keeps the name of what it writes.
            ops[second] = Some(NamedOp { name: b.name.clone(), op });
            ops[i] = None;
        }
    }
    recording.ops = ops.into_iter().flatten().collect();
}

/// The only operation that reads what operation `i` writes, if `i` writes one tensor and nothing in between
/// overwrites what `i` reads.
fn sole_reader(ops: &[Option<NamedOp>], is_kept: impl Fn(TensorId) -> bool, i: usize) -> Option<usize> {
    let access = ops[i].as_ref()?.op.access();
    let [out] = access.writes[..] else { return None };
    let touches = |o: &Option<NamedOp>| {
        o.as_ref().is_some_and(|o| {
            let a = o.op.access();
            a.reads.contains(&out) || a.writes.contains(&out)
        })
    };
    let mut readers = (0..ops.len()).filter(|&j| j != i && touches(&ops[j]));
    let reader = readers.next()?;
    if readers.next().is_some() || is_kept(out) || reader < i {
        return None;
    }
    let overwritten = |o: &Option<NamedOp>| {
        o.as_ref().is_some_and(|o| o.op.access().writes.iter().any(|w| access.reads.contains(w)))
    };
    if ops[i + 1..reader].iter().any(overwritten) {
        return None;
    }
    Some(reader)
}
