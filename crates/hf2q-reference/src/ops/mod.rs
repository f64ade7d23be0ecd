//! One operation a file.

mod add;
mod attention;
mod embed;
mod expert_mat_mul;
mod expert_sum;
mod glu;
mod input;
mod kv_store;
mod mat_mul;
mod norm_add;
mod norm_rope;
mod rms_norm;
mod rope;
mod route;
mod scale;
mod select_rows;
mod soft_cap;

use hf2q_plan::{BackendError, NamedOp, Op, Recording, RowKind, Step, View};

use crate::cache::CacheData;
use crate::memory::Memory;

/// What operations work on.
pub(crate) struct State<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) step: &'a Step,
    pub(crate) memory: &'a mut Memory,
    pub(crate) caches: &'a mut [CacheData],
}

impl State<'_> {
    /// For each row of an activation which row of the step it is.
    fn step_rows(&self, view: View) -> Vec<usize> {
        match self.memory.kind(view) {
            RowKind::Step => (0..self.step.len()).collect(),
            RowKind::Logits => self.step.logit_rows.iter().map(|&r| r as usize).collect(),
        }
    }
}

pub(crate) fn run(op: &NamedOp, s: &mut State<'_>) -> Result<(), BackendError> {
    match &op.op {
        Op::Embed(o) => embed::run(o, s),
        Op::Input(o) => input::run(o, s),
        Op::RmsNorm(o) => rms_norm::run(o, s),
        Op::MatMul(o) => mat_mul::run(o, s),
        Op::Rope(o) => rope::run(o, s),
        Op::KvStore(o) => kv_store::run(o, s),
        Op::Attention(o) => attention::run(o, s),
        Op::Add(o) => add::run(o, s),
        Op::Scale(o) => scale::run(o, s),
        Op::SoftCap(o) => soft_cap::run(o, s),
        Op::Glu(o) => glu::run(o, s),
        Op::Route(o) => route::run(o, s),
        Op::ExpertMatMul(o) => return expert_mat_mul::run(&op.name, o, s),
        Op::ExpertSum(o) => expert_sum::run(o, s),
        Op::SelectRows(o) => select_rows::run(o, s),
        Op::NormAdd(o) => norm_add::run(o, s),
        Op::NormRope(o) => norm_rope::run(o, s),
    }
    Ok(())
}

/// `Σ a[i] · b[i]` in f64, in eight interleaved partial sums that are added in order: the same order for the same
/// width.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0_f64; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a_blocks
        .remainder()
        .iter()
        .zip(b_blocks.remainder())
        .map(|(&x, &y)| f64::from(x) * f64::from(y))
        .sum();
    for (x, y) in a_blocks.zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += f64::from(x[lane]) * f64::from(y[lane]);
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to storage precision is meant")]
fn round(x: f64) -> f32 {
    x as f32
}
