//! What steps bring along for the inputs of a recording: a row is determined by its token and position.

use hf2q_plan::{Recording, Row};

use crate::random::Random;

/// `[R, width]` for each input of the recording.
pub(crate) fn inputs(recording: &Recording, rows: &[Row]) -> Vec<Vec<f32>> {
    let of_input = |(index, &width): (usize, &usize)| {
        let row = |row: &Row| {
            let seed = u64::from(row.token) << 40 | u64::from(row.position) << 8 | index as u64;
            let mut random = Random::new("input", seed);
            (0..width).map(|_| random.normal()).collect::<Vec<f32>>()
        };
        rows.iter().flat_map(row).collect()
    };
    recording.inputs.iter().enumerate().map(of_input).collect()
}
