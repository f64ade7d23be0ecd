//! Rows of an embedding table, dequantized.

use std::ops::Range;

use hf2q_gguf::{Bytes, TensorType};

use crate::call::{Call, Context, Operand, Scratch, Work};
use crate::step::StepData;

/// See [`hf2q_plan::Embed`]. A unit is a row.
pub(crate) struct Embed {
    pub(crate) table: Bytes,
    pub(crate) ty: TensorType,
    pub(crate) row_bytes: usize,
    pub(crate) out: Operand,
    pub(crate) scale: f32,
}

impl Call for Embed {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.out.rows), self.out.place.width, 0.5)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let out = cx.view(self.out.place);
        for row in units {
            let token = cx.step.step.rows[row].token as usize;
            let bytes = &self.table[token * self.row_bytes..][..self.row_bytes];
            let values = out.row_mut(row);
            hf2q_quant::dequantize(self.ty, bytes, values).expect("type and size are checked at open");
            for v in values {
                *v *= self.scale;
            }
        }
    }
}
