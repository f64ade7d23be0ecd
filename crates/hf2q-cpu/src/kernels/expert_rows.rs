//! Lists the rows of each expert, once for all products of a layer.

use std::ops::Range;

use super::picks::GroupTable;
use crate::call::{Call, Context, Operand, Scratch, Work};
use crate::step::StepData;

/// Fills a [`GroupTable`]. It has one unit.
pub(crate) struct ListRows {
    pub(crate) experts: Operand,
    pub(crate) table: GroupTable,
}

impl Call for ListRows {
    fn work(&self, step: &StepData) -> Work {
        let entries = step.count(self.experts.rows) * self.experts.place.width;
        Work::new(1, 100.0 + (entries + self.table.experts) as f32 * 3.0)
    }

    fn run(&self, cx: &Context<'_>, _units: Range<usize>, _scratch: &mut Scratch) {
        self.table.fill(cx, self.experts);
    }
}
