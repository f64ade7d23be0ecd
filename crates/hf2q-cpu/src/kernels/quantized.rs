//! Quantized activations, and the calls that multiply them with quantized weights.

use std::ops::Range;

use hf2q_plan::ExpertInput;

use super::float_mat_mul::Matrix;
use super::picks::{ExpertShape, GroupTable};
use super::quant_mat_mul::{OutputRows, PANEL, Picked, QuantMatMul, in_octets, quantize_row};
use crate::ahead::ask_for;
use crate::call::{Call, Context, Operand, Scratch, Work};
use crate::isa::Isa;
use crate::step::StepData;

/// Up to this many rows the weights' bytes bound the time.
const FEW: usize = 8;

/// Quantizes an activation for all products of a wave. A unit is a row.
pub(crate) struct Quantize {
    pub(crate) x: Operand,
    /// Parts of a row that are quantized rows of their own.
    pub(crate) parts: usize,
    /// Which of [`Context::quantized`].
    pub(crate) into: usize,
    /// Whether that has room for octets.
    pub(crate) octets: bool,
}

/// See [`hf2q_plan::MatMul`]. A unit is a range of columns, for all rows.
pub(crate) struct QuantizedMatMul {
    pub(crate) x: Operand,
    pub(crate) from: usize,
    pub(crate) weight: Matrix,
    pub(crate) out: Operand,
    /// Threads and instruction set.
    pub(crate) plan: (usize, Isa),
}

/// See [`hf2q_plan::ExpertMatMul`]. A unit is a range of columns of one expert's rows. The result's view is its whole
/// tensor, so that entry `i` starts at `i · n_out`.
pub(crate) struct QuantizedExpertMatMul {
    pub(crate) x: Operand,
    pub(crate) from: usize,
    pub(crate) weight: Matrix,
    pub(crate) out: Operand,
    pub(crate) shape: ExpertShape,
    pub(crate) table: GroupTable,
}

impl Call for Quantize {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.x.rows), self.x.place.width, 0.25)
    }

    #[expect(unsafe_code, reason = "threads quantize different rows")]
    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (x, into) = (cx.view(self.x.place), &cx.quantized[self.into]);
        let width = x.width() / self.parts;
        let octets = self.octets && in_octets(cx.isa, cx.count(self.x));
        for row in units {
            for part in 0..self.parts {
                // SAFETY: units are run once, so nobody else has this row, and no product reads in this stage.
                let out = unsafe {
                    let row = row * self.parts + part;
                    if octets { into.row_in_octets(row) } else { into.row_shared(row) }
                };
                quantize_row(cx.isa, x.columns(row, part * width..(part + 1) * width), out);
            }
        }
    }
}

/// Columns of a unit: with many rows, products want some panels at a time; with few, threads want even shares.
fn unit_columns(n_out: usize, rows: usize, (threads, isa): (usize, Isa)) -> usize {
    if in_octets(isa, rows) {
        return 4 * PANEL;
    }
    if rows <= FEW {
        return PANEL;
    }
    n_out.div_ceil(2 * threads).next_multiple_of(PANEL).clamp(4 * PANEL, 16 * PANEL)
}

fn nanoseconds(weight: &Matrix, rows: usize, columns: usize) -> f32 {
    let weights = (weight.n_in * columns) as f32;
    weights * (0.06 + 0.01 * rows as f32)
}

impl Call for QuantizedMatMul {
    fn work(&self, step: &StepData) -> Work {
        let rows = step.count(self.x.rows);
        let columns = unit_columns(self.weight.n_out, rows, self.plan);
        let units = if rows == 0 { 0 } else { self.weight.n_out.div_ceil(columns) };
        Work::new(units, nanoseconds(&self.weight, rows, columns))
    }

    #[expect(unsafe_code, reason = "threads write different columns of the same rows")]
    fn run(&self, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let rows = cx.count(self.x);
        let Matrix { bytes, ty, n_in, n_out } = &self.weight;
        let each = unit_columns(*n_out, rows, self.plan);
        let columns = units.start * each..(units.end * each).min(*n_out);
        let out = cx.view(self.out.place);
        let list = &cx.step.identity[..rows];
        // SAFETY: `base` checks the rows; only this unit writes these columns.
        let target = unsafe { OutputRows::new(out.base(rows), out.stride(), list) };
        let input = Picked { x: &cx.quantized[self.from], rows: list };
        let product = QuantMatMul::new(cx.isa, *ty, bytes, (*n_out, *n_in));
        if in_octets(cx.isa, rows) {
            product.run_laid_out(input, columns, &target, &mut scratch.quantized);
        } else {
            product.run(input, columns, &target, &mut scratch.quantized);
        }
    }

    fn ahead(&self, step: &StepData, units: Range<usize>) {
        let Matrix { bytes, n_out, .. } = &self.weight;
        let first = units.start * unit_columns(*n_out, step.count(self.x.rows), self.plan);
        ask_for(&bytes[bytes.len() / n_out * first..]);
    }
}

impl QuantizedExpertMatMul {
    fn active(&self, step: &StepData) -> usize {
        (step.count(self.x.rows) * self.shape.top_k).min(self.table.experts)
    }

    /// Columns of a unit; the number of an expert's rows is not known before the router has run.
    fn columns(&self, step: &StepData) -> usize {
        if step.count(self.x.rows) <= FEW { PANEL } else { 8 * PANEL }
    }
}

impl Call for QuantizedExpertMatMul {
    fn work(&self, step: &StepData) -> Work {
        let columns = self.columns(step);
        let active = self.active(step);
        let rows = (step.count(self.x.rows) * self.shape.top_k).div_ceil(active.max(1));
        Work::new(active * self.weight.n_out.div_ceil(columns), nanoseconds(&self.weight, rows, columns))
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let each = self.columns(cx.step);
        let per_expert = self.weight.n_out.div_ceil(each);
        let mut unit = units.start;
        while unit < units.end {
            let first = unit % per_expert;
            let last = per_expert.min(first + units.end - unit);
            let columns = first * each..(last * each).min(self.weight.n_out);
            self.expert(cx, unit / per_expert, columns, scratch);
            unit += last - first;
        }
    }
}

impl QuantizedExpertMatMul {
    /// Columns of the `i`-th expert that has rows.
    #[expect(unsafe_code, reason = "threads write different columns of the same rows")]
    fn expert(&self, cx: &Context<'_>, i: usize, columns: Range<usize>, scratch: &mut Scratch) {
        let Some(found) = self.table.get(cx, i) else { return };
        let Matrix { bytes, ty, n_in, n_out } = &self.weight;
        let matrix_bytes = bytes.len() / self.table.experts;
        let matrix = &bytes[found.expert * matrix_bytes..][..matrix_bytes];
        let base = cx.view(self.out.place).base(cx.count(self.x));
        // SAFETY: `base` checks the rows; every entry occurs once, and only this unit writes its columns.
        let target = unsafe { OutputRows::new(base, *n_out, found.entries) };
        let rows = match self.shape.input {
            ExpertInput::Shared => found.rows,
            ExpertInput::PerExpert => found.entries,
        };
        let input = Picked { x: &cx.quantized[self.from], rows };
        let product = QuantMatMul::new(cx.isa, *ty, matrix, (*n_out, *n_in));
        product.run(input, columns, &target, &mut scratch.quantized);
    }
}
