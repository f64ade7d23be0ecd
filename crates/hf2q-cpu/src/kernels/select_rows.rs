//! The rows whose logits are wanted.

use std::ops::Range;

use crate::call::{Call, Context, Operand, Scratch, Work};
use crate::step::StepData;

/// See [`hf2q_plan::SelectRows`]. A unit is a row of the result.
pub(crate) struct SelectRows {
    pub(crate) x: Operand,
    pub(crate) out: Operand,
}

impl Call for SelectRows {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.out.rows), self.out.place.width, 0.08)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, out) = (cx.view(self.x.place), cx.view(self.out.place));
        for unit in units {
            let row = cx.step.step.logit_rows[unit] as usize;
            out.row_mut(unit).copy_from_slice(x.row(row));
        }
    }
}
