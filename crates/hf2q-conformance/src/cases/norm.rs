//! Norms of rows and of heads, alone and folded into what follows them.

use hf2q_plan::{Norm, Pairing, Passes};

use super::Case;
use super::rope::plain;
use crate::builder::Values;
use crate::tolerance::Precision::Single;

pub(super) fn cases(cases: &mut Vec<Case>) {
    let normal = Values::Normal(1.0);
    let rows = [
        (1, 1, normal),
        (3, 3, normal),
        (17, 17, Values::Normal(1e-4)),
        (64, 64, Values::Normal(1e4)),
        (100, 100, normal),
        (257, 257, Values::ZeroRows),
        (640, 640, normal),
        (2560, 2560, normal),
        (64, 32, normal),
        (51, 17, normal),
        (256, 64, normal),
        (512, 256, normal),
        (1024, 512, Values::ZeroRows),
    ];
    for (width, group, values) in rows {
        for weighted in [false, true] {
            let name = format!("width {width} group {group} {values:?} weighted {weighted}");
            cases.push(Case::new("rms_norm", name, Single, move |b| {
                let weight = weighted.then(|| b.near_one("w", group));
                let x = b.input("x", width + 7, values).columns(3, width);
                b.r.head_norm("out", x, Norm { weight, eps: 1e-6 }, group)
            }));
        }
    }
    cases.push(Case::of_logits("rms_norm", "of logit rows".to_owned(), Single, |b| {
        let weight = Some(b.near_one("w", 130));
        let x = b.input("x", 130, Values::Normal(1.0));
        let x = b.r.select_rows("selected", x);
        b.r.rms_norm("out", x, Norm { weight, eps: 1e-5 })
    }));
    norm_add(cases);
    norm_rope(cases);
}

fn norm_add(cases: &mut Vec<Case>) {
    for (width, weighted, residual_first) in
        [(1, true, true), (17, false, true), (100, true, false), (257, true, true), (640, false, false)]
    {
        let name = format!("width {width} weighted {weighted} residual first {residual_first}");
        let case = Case::new("norm_add", name, Single, move |b| {
            let weight = weighted.then(|| b.near_one("w", width));
            let x = b.input("x", width + 5, Values::Normal(2.0)).columns(5, width);
            let residual = b.input("residual", width + 2, Values::Normal(1.0)).columns(1, width);
            let y = b.r.rms_norm("norm", x, Norm { weight, eps: 1e-6 });
            if residual_first { b.r.add("out", residual, y) } else { b.r.add("out", y, residual) }
        });
        cases.push(Case { passes: Passes::ALL, ..case });
    }
}

fn norm_rope(cases: &mut Vec<Case>) {
    for (head_dim, heads, pairing) in [
        (32, 1, Pairing::Halves),
        (64, 3, Pairing::Adjacent),
        (128, 2, Pairing::Halves),
        (256, 4, Pairing::Halves),
        (512, 2, Pairing::Halves),
    ] {
        for weighted in [false, true] {
            let name = format!("{heads} heads of {head_dim} {pairing:?} weighted {weighted}");
            let precision = crate::tolerance::Precision::Angle;
            let case = Case::new("norm_rope", name, precision, move |b| {
                let weight = weighted.then(|| b.near_one("w", head_dim));
                let width = heads * head_dim;
                let x = b.input("x", width + 9, Values::Normal(1.0)).columns(9, width);
                let y = b.r.head_norm("norm", x, Norm { weight, eps: 1e-6 }, head_dim);
                b.r.rope("out", y, head_dim, plain(head_dim, pairing))
            });
            cases.push(Case { passes: Passes::ALL, ..case });
        }
    }
    let precision = crate::tolerance::Precision::Angle;
    let case = Case::of_logits("norm_rope", "of wanted rows".to_owned(), precision, |b| {
        let x = b.input("x", 3 * 32, Values::Normal(1.0));
        let x = b.r.select_rows("selected", x);
        let y = b.r.head_norm("norm", x, Norm { weight: None, eps: 1e-6 }, 32);
        b.r.rope("out", y, 32, plain(32, Pairing::Adjacent))
    });
    cases.push(Case { passes: Passes::ALL, ..case });
}
