use hf2q_plan::Scale;

use super::State;

pub(super) fn run(o: &Scale, s: &mut State<'_>) {
    let factor = o.by.map_or(o.factor, |id| o.factor * s.memory.weight(id)[0]);
    for r in 0..s.memory.rows(o.out) {
        let out: Vec<f32> = s.memory.row(o.x, r).iter().map(|x| factor * x).collect();
        s.memory.set_row(o.out, r, &out);
    }
}
