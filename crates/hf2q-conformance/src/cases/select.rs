//! Rows whose logits are wanted; the steps of every case ask for all, for some and for none.

use super::Case;
use crate::builder::Values;
use crate::tolerance::Precision::Exact;

pub(super) fn cases(cases: &mut Vec<Case>) {
    for width in [1, 17, 64, 641] {
        cases.push(Case::of_logits("select_rows", format!("width {width}"), Exact, move |b| {
            let x = b.input("x", width + 3, Values::Normal(1.0)).columns(2, width);
            b.r.select_rows("out", x)
        }));
    }
}
