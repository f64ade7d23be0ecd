//! Rows that the step brings along: one input, and two of which the second is a part of the result.

use super::Case;
use crate::tolerance::Precision::Exact;

pub(super) fn cases(cases: &mut Vec<Case>) {
    for width in [1, 17, 64, 641] {
        cases.push(Case::new("input", format!("width {width}"), Exact, move |b| b.r.input("out", width)));
        cases.push(Case::new("input", format!("second of width {width}"), Exact, move |b| {
            let first = b.r.input("first", 2 * width + 1);
            let second = b.r.input("second", width);
            b.r.add("out", first.columns(1, width), second)
        }));
    }
}
