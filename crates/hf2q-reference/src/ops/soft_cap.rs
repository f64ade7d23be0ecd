use hf2q_plan::SoftCap;

use super::{State, round};

pub(super) fn run(o: &SoftCap, s: &mut State<'_>) {
    let cap = f64::from(o.cap);
    for r in 0..s.memory.rows(o.out) {
        let capped = |&x: &f32| round(cap * (f64::from(x) / cap).tanh());
        let out: Vec<f32> = s.memory.row(o.x, r).iter().map(capped).collect();
        s.memory.set_row(o.out, r, &out);
    }
}
