//! Rows that the step brings along.

use std::ops::Range;

use crate::call::{Call, Context, Operand, Scratch, Work};
use crate::step::StepData;

/// See [`hf2q_plan::Input`]. A unit is a row.
pub(crate) struct Input {
    pub(crate) index: usize,
    pub(crate) out: Operand,
}

impl Call for Input {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.out.rows), self.out.place.width, 0.08)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let out = cx.view(self.out.place);
        let (values, width) = (&cx.step.step.inputs[self.index], self.out.place.width);
        for row in units {
            out.row_mut(row).copy_from_slice(&values[row * width..][..width]);
        }
    }
}
