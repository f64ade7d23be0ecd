use hf2q_plan::RmsNorm;

use super::{State, dot, round};

pub(super) fn run(o: &RmsNorm, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.out) {
        let weight = o.weight.map(|id| s.memory.weight(id));
        let out = normalized(s.memory.row(o.x, r), weight, o.group, o.eps);
        s.memory.set_row(o.out, r, &out);
    }
}

/// One row; every `group` columns by themselves.
pub(super) fn normalized(x: &[f32], weight: Option<&[f32]>, group: usize, eps: f32) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for x in x.chunks_exact(group) {
        let mean_square = dot(x, x) / group as f64;
        let root = (mean_square + f64::from(eps)).sqrt();
        for (i, &x) in x.iter().enumerate() {
            let w = weight.map_or(1.0, |w| f64::from(w[i]));
            out.push(round(f64::from(x) / root * w));
        }
    }
    out
}
