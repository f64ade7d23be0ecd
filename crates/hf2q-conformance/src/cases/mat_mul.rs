//! Every format, ragged widths, views, and inputs for which int8 activations are exact.

use hf2q_gguf::TensorType;

use super::Case;
use crate::blocks;
use crate::builder::Values;
use crate::tolerance::Precision;

/// What limits the precision of a product with weights of type `ty`.
pub(super) fn precision(ty: TensorType, values: Values) -> Precision {
    if blocks::is_quantized(ty) && values != Values::Representable {
        Precision::Int8
    } else {
        Precision::Single
    }
}

/// Inputs that show errors which int8 activations would hide, then ordinary ones.
pub(super) fn inputs(ty: TensorType) -> &'static [Values] {
    if blocks::is_quantized(ty) {
        &[Values::Representable, Values::Normal(1.0), Values::ZeroRows]
    } else {
        &[Values::Normal(1.0)]
    }
}

fn shapes(ty: TensorType) -> Vec<(usize, usize)> {
    match ty.block_len() {
        1 => vec![(1, 1), (3, 17), (17, 3), (64, 16), (100, 65), (257, 33), (512, 130)],
        32 => vec![(32, 1), (64, 17), (96, 16), (160, 33), (288, 15), (512, 130)],
        len => vec![(len, 1), (2 * len, 17), (3 * len, 48), (len, 130)],
    }
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    for ty in blocks::types() {
        for &values in inputs(ty) {
            for (n_in, n_out) in shapes(ty) {
                let name = format!("{ty} {n_in} to {n_out} {values:?}");
                cases.push(Case::new("mat_mul", name, precision(ty, values), move |b| {
                    let w = b.matrix("w", ty, n_in, n_out);
                    let x = b.input("x", n_in, values);
                    b.r.mat_mul("out", x, w)
                }));
            }
        }
        let n_in = 2 * ty.block_len().max(20);
        let name = format!("{ty} {n_in} to 37 of a view");
        let values = inputs(ty)[0];
        cases.push(Case::new("mat_mul", name, precision(ty, Values::Normal(1.0)), move |b| {
            let w = b.matrix("w", ty, n_in, 37);
            let x = b.input("x", n_in + 11, values).columns(7, n_in);
            b.r.mat_mul("out", x, w)
        }));
        let name = format!("{ty} {n_in} to 201 of logit rows");
        cases.push(Case::of_logits("mat_mul", name, precision(ty, values), move |b| {
            let w = b.matrix("w", ty, n_in, 201);
            let x = b.input("x", n_in, values);
            let x = b.r.select_rows("selected", x);
            b.r.mat_mul("out", x, w)
        }));
    }
}
