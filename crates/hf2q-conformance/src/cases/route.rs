//! Numbers of experts and of chosen ones up to all, ties, scales. The chosen experts are compared through the
//! observer.

use hf2q_plan::Renormalize;

use super::Case;
use crate::builder::Values;
use crate::tolerance::Precision::Single;

pub(super) fn cases(cases: &mut Vec<Case>) {
    for (experts, top_k) in [(1, 1), (2, 1), (3, 3), (8, 2), (17, 5), (64, 8), (100, 1), (128, 8), (128, 128)]
    {
        for values in [Values::Normal(2.0), Values::Normal(30.0), Values::Ties, Values::LowHalf] {
            for renormalize in [Renormalize::Chosen, Renormalize::Keep] {
                let scaled = renormalize == Renormalize::Chosen;
                let name = format!("{top_k} of {experts} {renormalize:?} {values:?} scaled {scaled}");
                cases.push(Case::new("route", name, Single, move |b| {
                    let scale = scaled.then(|| b.near_one("scale", experts));
                    let logits = b.input("logits", experts + 4, values).columns(3, experts);
                    b.r.route("out", logits, top_k, (renormalize, scale)).1
                }));
            }
        }
    }
}
