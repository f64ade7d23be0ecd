use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use hf2q_plan::{Activation, Glu};

use super::{State, round};

pub(super) fn run(o: &Glu, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.out) {
        let mut out = Vec::with_capacity(o.out.width);
        for group in 0..o.groups {
            let part = |view: hf2q_plan::View| {
                let at = view.offset + group * o.stride;
                s.memory.columns(view.tensor, r, at..at + view.width)
            };
            let pairs = part(o.gate).iter().zip(part(o.up));
            out.extend(pairs.map(|(&g, &u)| round(activated(o.act, f64::from(g)) * f64::from(u))));
        }
        s.memory.set_row(o.out, r, &out);
    }
}

fn activated(act: Activation, x: f64) -> f64 {
    match act {
        Activation::GeluTanh => {
            let root_two_over_pi = FRAC_2_SQRT_PI / SQRT_2;
            x / 2.0 * (1.0 + (root_two_over_pi * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}
