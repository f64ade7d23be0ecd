use hf2q_plan::NormAdd;

use super::{State, add, rms_norm};

/// The norm is rounded to f32 before it is added, as it is without fusion.
pub(super) fn run(o: &NormAdd, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.out) {
        let weight = o.weight.map(|id| s.memory.weight(id));
        let norm = rms_norm::normalized(s.memory.row(o.x, r), weight, o.x.width, o.eps);
        let out = add::sum(s.memory.row(o.residual, r), &norm);
        s.memory.set_row(o.out, r, &out);
    }
}
