//! The text form of a plan, for people and for snapshots.

use std::fmt;

use crate::op::Op;
use crate::plan::{Plan, Recording};
use crate::tensor::{TensorId, TensorKind};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.recording;
        for (wave, range) in self.waves.iter().enumerate() {
            writeln!(f, "wave {wave}")?;
            for op in &r.ops[range.clone()] {
                writeln!(f, "  {:<28} {:<14} {}", op.name, op.op.kind(), operands(r, &op.op))?;
            }
        }
        Ok(())
    }
}

fn operands(r: &Recording, op: &Op) -> String {
    let access = op.access();
    let list = |ids: &[TensorId]| ids.iter().map(|&t| tensor(r, t)).collect::<Vec<_>>().join(", ");
    format!("{} -> {}", list(&access.reads), list(&access.writes))
}

fn tensor(r: &Recording, id: TensorId) -> String {
    let t = &r.tensors[id.index()];
    match &t.kind {
        TensorKind::Weight(w) if w.experts > 1 => {
            format!("{}:{}[{}x{}x{}]", t.name, w.ty, w.experts, w.rows, w.cols)
        }
        TensorKind::Weight(w) => format!("{}:{}[{}x{}]", t.name, w.ty, w.rows, w.cols),
        TensorKind::Activation { width, .. } => format!("{}[{width}]", t.name),
        TensorKind::Indices { width, .. } => format!("{}:i32[{width}]", t.name),
        TensorKind::Cache(_) => t.name.clone(),
    }
}
