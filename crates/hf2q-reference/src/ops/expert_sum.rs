use hf2q_plan::ExpertSum;

use super::{State, round};

pub(super) fn run(o: &ExpertSum, s: &mut State<'_>) {
    for r in 0..s.memory.rows(o.out) {
        let mut sums = vec![0.0_f64; o.out.width];
        let parts = s.memory.row(o.x, r).chunks_exact(o.out.width);
        for (&weight, part) in s.memory.row(o.weights, r).iter().zip(parts) {
            for (sum, &x) in sums.iter_mut().zip(part) {
                *sum += f64::from(weight) * f64::from(x);
            }
        }
        let out: Vec<f32> = sums.into_iter().map(round).collect();
        s.memory.set_row(o.out, r, &out);
    }
}
