use hf2q_plan::Add;

use super::State;

pub(super) fn run(o: &Add, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.out) {
        let out = sum(s.memory.row(o.a, r), s.memory.row(o.b, r));
        s.memory.set_row(o.out, r, &out);
    }
}

pub(super) fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(x, y)| x + y).collect()
}
