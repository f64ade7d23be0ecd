//! What an operation moves and computes.

use crate::op::{ExpertInput, Op};
use crate::plan::Recording;
use crate::tensor::{RowKind, TensorId, TensorKind, View};

/// Work of one operation in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of activations read and written; the cache not counted.
    pub activation_bytes: u64,
    /// Multiplications and additions of matrix products; other operations count none.
    pub flops: u64,
}

impl Recording {
    /// The cost of an operation in a step of `rows` rows of which `logit_rows` want logits. Of expert stacks at most
    /// `rows · top_k` matrices are read.
    pub fn cost(&self, op: &Op, rows: usize, logit_rows: usize) -> Cost {
        let access = op.access();
        let activation_bytes = access
            .reads
            .iter()
            .chain(&access.writes)
            .map(|&t| self.activation_bytes(t, rows, logit_rows))
            .sum();
        let weight_bytes = match op {
            Op::Embed(o) => {
                self.weight_bytes(o.table) / self.weight(o.table).rows.max(1) as u64 * rows as u64
            }
            Op::ExpertMatMul(o) => {
                let w = self.weight(o.weight);
                let used = (rows * o.experts.width).min(w.experts);
                self.weight_bytes(o.weight) / w.experts.max(1) as u64 * used as u64
            }
            _ => access.reads.iter().map(|&t| self.weight_bytes(t)).sum(),
        };
        Cost { weight_bytes, activation_bytes, flops: self.flops(op, rows, logit_rows) }
    }

    fn flops(&self, op: &Op, rows: usize, logit_rows: usize) -> u64 {
        let product = |x: View, width: usize, out: View| {
            let count = match self.activation(x.tensor) {
                Some((RowKind::Logits, _)) => logit_rows,
                _ => rows,
            };
            2 * (count * width * out.width) as u64
        };
        match op {
            Op::MatMul(o) => product(o.x, o.x.width, o.out),
            Op::ExpertMatMul(o) => match o.input {
                ExpertInput::Shared => product(o.x, o.x.width, o.out),
                ExpertInput::PerExpert => product(o.x, o.x.width / o.experts.width.max(1), o.out),
            },
            _ => 0,
        }
    }

    fn activation_bytes(&self, id: TensorId, rows: usize, logit_rows: usize) -> u64 {
        match self.activation(id) {
            Some((RowKind::Step, width)) => (rows * width * 4) as u64,
            Some((RowKind::Logits, width)) => (logit_rows * width * 4) as u64,
            None => 0,
        }
    }

    /// Bytes of a weight in the file; 0 for anything else.
    pub fn weight_bytes(&self, id: TensorId) -> u64 {
        match &self.tensors[id.index()].kind {
            TensorKind::Weight(w) => {
                let row = w.ty.row_bytes(w.cols).unwrap_or(0);
                (row * w.rows * w.experts) as u64
            }
            _ => 0,
        }
    }
}
