use hf2q_plan::{BackendError, ExpertInput, ExpertMatMul};

use super::{State, dot, round};

pub(super) fn run(name: &str, o: &ExpertMatMul, s: &mut State<'_>) -> Result<(), BackendError> {
    let w = s.recording.weight(o.weight);
    for r in 0..s.memory.rows(o.out) {
        let mut out = Vec::with_capacity(o.out.width);
        for (i, &expert) in s.memory.indices(o.experts, r).iter().enumerate() {
            let Some(expert) = usize::try_from(expert).ok().filter(|&e| e < w.experts) else {
                let why = format!("operation {name}: row {r} chose expert {expert} of {}", w.experts);
                return Err(BackendError::Failed { backend: crate::backend::NAME, why });
            };
            let x = match o.input {
                ExpertInput::Shared => s.memory.row(o.x, r),
                ExpertInput::PerExpert => &s.memory.row(o.x, r)[i * w.cols..(i + 1) * w.cols],
            };
            let size = w.rows * w.cols;
            let matrix = &s.memory.weight(o.weight)[expert * size..(expert + 1) * size];
            out.extend(matrix.chunks_exact(w.cols).map(|w| round(dot(x, w))));
        }
        s.memory.set_row(o.out, r, &out);
    }
    Ok(())
}
