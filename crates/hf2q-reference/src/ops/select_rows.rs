use hf2q_plan::SelectRows;

use super::State;

pub(super) fn run(o: &SelectRows, s: &mut State<'_>) {
    for (l, &r) in s.step.logit_rows.iter().enumerate() {
        let x = s.memory.row(o.x, r as usize).to_vec();
        s.memory.set_row(o.out, l, &x);
    }
}
