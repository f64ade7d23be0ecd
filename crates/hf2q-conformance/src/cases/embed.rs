//! Every format, at the narrowest width and at one of several blocks, with and without a scale.

use super::{Case, TOKENS};
use crate::blocks;
use crate::tolerance::Precision;

pub(super) fn cases(cases: &mut Vec<Case>) {
    for ty in blocks::types() {
        let widths = if ty.block_len() == 1 { [1, 67, 640] } else { [1, 3, 5].map(|n| n * ty.block_len()) };
        for (width, scale) in widths.into_iter().zip([1.0, 25.3, 1.0]) {
            let name = format!("{ty} width {width} scale {scale}");
            cases.push(Case::new("embed", name, Precision::Exact, move |b| {
                let table = b.matrix("table", ty, width, TOKENS);
                b.r.embed("out", table, scale)
            }));
        }
    }
}
