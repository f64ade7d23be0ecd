use hf2q_plan::NormRope;

use super::{State, rms_norm, rope};

/// The norm is rounded to f32 before it is rotated, as it is without fusion.
pub(super) fn run(o: &NormRope, s: &mut State<'_>) {
    let frequencies = rope::frequencies(&o.rope, o.rope.factors.map(|id| s.memory.weight(id)));
    for (i, r) in s.step_rows(o.x).into_iter().enumerate() {
        let position = s.step.rows[r].position;
        let weight = o.weight.map(|id| s.memory.weight(id));
        let norm = rms_norm::normalized(s.memory.row(o.x, i), weight, o.head_dim, o.eps);
        let out = rope::rotated(&norm, o.head_dim, (&o.rope, &frequencies), position);
        s.memory.set_row(o.out, i, &out);
    }
}
