use hf2q_plan::Embed;

use super::State;

pub(super) fn run(o: &Embed, s: &mut State<'_>) {
    for (r, row) in s.step.rows.iter().enumerate() {
        let at = row.token as usize * o.out.width;
        let table = &s.memory.weight(o.table)[at..at + o.out.width];
        let out: Vec<f32> = table.iter().map(|x| o.scale * x).collect();
        s.memory.set_row(o.out, r, &out);
    }
}
