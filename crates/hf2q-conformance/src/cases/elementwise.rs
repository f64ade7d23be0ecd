//! Sums, factors, caps and gates over ragged widths and views.

use hf2q_plan::Activation;

use super::Case;
use crate::builder::Values;
use crate::tolerance::Precision::{Exact, Single};

const WIDTHS: [usize; 6] = [1, 3, 17, 64, 129, 640];

pub(super) fn cases(cases: &mut Vec<Case>) {
    for width in WIDTHS {
        cases.push(Case::new("add", format!("width {width}"), Exact, move |b| {
            let a = b.input("a", width + 5, Values::Normal(1.0)).columns(5, width);
            let c = b.input("b", width + 2, Values::Normal(3.0)).columns(1, width);
            b.r.add("out", a, c)
        }));
        cases.push(Case::new("add", format!("to itself, width {width}"), Exact, move |b| {
            let a = b.input("a", width, Values::Normal(1.0));
            b.r.add("out", a, a)
        }));
        for by in [false, true] {
            cases.push(Case::new("scale", format!("width {width} by {by}"), Exact, move |b| {
                let by = by.then(|| b.vector("by", &[0.7]));
                let x = b.input("x", width + 5, Values::Normal(1.0)).columns(5, width);
                b.r.scale("out", x, 1.7, by)
            }));
        }
        for cap in [0.25, 30.0] {
            cases.push(Case::new("soft_cap", format!("width {width} cap {cap}"), Single, move |b| {
                let x = b.input("x", width + 1, Values::Normal(20.0)).columns(1, width);
                b.r.soft_cap("out", x, cap)
            }));
        }
    }
    cases.push(Case::of_logits("soft_cap", "of logit rows".to_owned(), Single, |b| {
        let x = b.input("x", 201, Values::Normal(20.0));
        let x = b.r.select_rows("selected", x);
        b.r.soft_cap("out", x, 30.0)
    }));
    cases.push(Case::of_logits("scale", "of logit rows".to_owned(), Exact, |b| {
        let x = b.input("x", 201, Values::Normal(1.0));
        let x = b.r.select_rows("selected", x);
        b.r.scale("out", x, 0.125, None)
    }));
    gates(cases);
}

fn gates(cases: &mut Vec<Case>) {
    for act in [Activation::GeluTanh, Activation::Silu] {
        for (i, width) in WIDTHS.into_iter().enumerate() {
            let deviation = [1.0, 0.01, 5.0, 40.0, 1.0, 3.0][i];
            let name = format!("{act:?} width {width} of size {deviation}");
            cases.push(Case::new("glu", name, Single, move |b| {
                let x = b.input("x", 2 * width + 4, Values::Normal(deviation));
                b.r.glu("out", x.columns(width + 3, width), x.columns(1, width), act)
            }));
        }
        for (width, groups) in [(1, 1), (3, 2), (17, 4), (64, 8)] {
            let name = format!("{act:?} packed width {width} groups {groups}");
            cases.push(Case::new("glu", name, Single, move |b| {
                let x = b.input("x", 2 * width * groups, Values::Normal(2.0));
                b.r.packed_expert_glu("out", x, groups, act)
            }));
        }
    }
}
