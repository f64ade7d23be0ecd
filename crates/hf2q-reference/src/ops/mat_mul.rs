use hf2q_plan::MatMul;

use super::{State, dot, round};

pub(super) fn run(o: &MatMul, s: &mut State<'_>) {
    let rows = s.memory.rows(o.out);
    let mut out = vec![vec![0.0; o.out.width]; rows];
    // Weight rows outside: each is used for all rows while it is in the processor's cache.
    for (column, w) in s.memory.weight(o.weight).chunks_exact(o.x.width).enumerate() {
        for (r, out) in out.iter_mut().enumerate() {
            out[column] = round(dot(s.memory.row(o.x, r), w));
        }
    }
    for (r, out) in out.iter().enumerate() {
        s.memory.set_row(o.out, r, out);
    }
}
