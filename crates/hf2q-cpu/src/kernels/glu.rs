//! Gated linear units.

use std::ops::Range;

use hf2q_plan::Activation;

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd, gelu_tanh, silu};
use crate::step::StepData;

/// See [`hf2q_plan::Glu`]. A unit is one group of a row. The places of `gate` and `up` are as wide as all groups.
pub(crate) struct Glu {
    pub(crate) gate: Operand,
    pub(crate) up: Operand,
    pub(crate) out: Operand,
    pub(crate) act: Activation,
    pub(crate) groups: usize,
    pub(crate) stride: usize,
}

impl VectorCall for Glu {
    fn work(&self, step: &StepData) -> Work {
        let width = self.out.place.width / self.groups;
        Work::new(step.count(self.out.rows) * self.groups, 20.0 + width as f32 * 0.5)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (gate, up, out) = (cx.view(self.gate.place), cx.view(self.up.place), cx.view(self.out.place));
        let width = out.width() / self.groups;
        for unit in units {
            let (row, group) = (unit / self.groups, unit % self.groups);
            let from = group * self.stride..group * self.stride + width;
            let (gate, up) = (gate.columns(row, from.clone()), up.columns(row, from));
            let out = out.columns_mut(row, group * width..(group + 1) * width);
            match self.act {
                Activation::GeluTanh => gelu_row(s, gate, up, out),
                Activation::Silu => silu_row(s, gate, up, out),
            }
        }
    }
}

/// Defines a row function: the match on the activation stays outside the loop.
macro_rules! row {
    ($name:ident, $act:ident) => {
        #[inline(always)]
        fn $name<S: Simd>(s: S, gate: &[f32], up: &[f32], out: &mut [f32]) {
            let ((gate, gate_tail), (up, up_tail)) = (gate.as_chunks::<LANES>(), up.as_chunks::<LANES>());
            let (out, out_tail) = out.as_chunks_mut::<LANES>();
            for ((gate, up), out) in gate.iter().zip(up).zip(out) {
                s.store(s.mul($act(s, s.load(gate)), s.load(up)), out);
            }
            if !out_tail.is_empty() {
                let v = s.mul($act(s, s.load_part(gate_tail)), s.load_part(up_tail));
                s.store_part(v, out_tail);
            }
        }
    };
}

row!(gelu_row, gelu_tanh);
row!(silu_row, silu);
