//! Rotation by a number of positions, forwards or backwards.

use hf2q_arch::{Rope, RopeScaling};

/// Angles of a head's pairs, which are its halves (Su et al. 2021).
#[derive(Clone, Debug)]
pub(super) struct Turn {
    head_dim: usize,
    /// Columns from the first of a pair to the second.
    half: usize,
    /// Radians by position, of the pairs that turn.
    speeds: Vec<f64>,
}

impl Turn {
    /// `None` for a rotation whose angles are no multiples of the position.
    pub(super) fn new(head_dim: usize, rope: Rope, factors: Option<&[f32]>) -> Option<Self> {
        if matches!(rope.scaling, RopeScaling::Yarn { .. }) {
            return None;
        }
        let half = rope.dims / 2;
        let scale = f64::from(rope.scaling.freq_scale());
        let speed = |i: usize| {
            let factor = factors.and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
            scale * f64::from(rope.base).powf(-2.0 * i as f64 / rope.dims as f64) / factor
        };
        let mut speeds: Vec<f64> = (0..half).map(speed).collect();
        // Pairs that do not turn have a factor so large that no position moves them.
        let turning = speeds.iter().rposition(|s| s.abs() > 1e-22).map_or(0, |last| last + 1);
        speeds.truncate(turning);
        Some(Self { head_dim, half, speeds })
    }

    /// Turns all heads of a row.
    pub(super) fn apply(&self, row: &mut [f32], by: i64) {
        let turns: Vec<(f64, f64)> = self.speeds.iter().map(|s| (s * by as f64).sin_cos()).collect();
        for head in row.chunks_exact_mut(self.head_dim) {
            for (i, &(sin, cos)) in turns.iter().enumerate() {
                let (a, b) = (f64::from(head[i]), f64::from(head[i + self.half]));
                head[i] = (a * cos - b * sin) as f32;
                head[i + self.half] = (a * sin + b * cos) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_add_up_and_leave_the_other_pairs_alone() {
        let rope = Rope { base: 1e6, dims: 8, scaling: RopeScaling::None, factors: true };
        let turn = Turn::new(8, rope, Some(&[1.0, 2.0, 1e30, 1e30])).unwrap();
        assert_eq!(turn.speeds.len(), 2);
        let first: Vec<f32> = (0..16_u8).map(|i| f32::from(i) - 7.0).collect();
        let mut row = first.clone();
        turn.apply(&mut row, 5);
        assert!((row[0] - (first[0] * 5_f32.cos() - first[4] * 5_f32.sin())).abs() < 1e-5);
        assert_eq!((row[2], row[7], row[10]), (first[2], first[7], first[10]));
        turn.apply(&mut row, -7);
        turn.apply(&mut row, 2);
        assert!(row.iter().zip(&first).all(|(a, b)| (a - b).abs() < 1e-5), "{row:?}");
    }

    #[test]
    fn a_stretched_rotation_is_linear_or_refused() {
        let linear =
            Rope { base: 1e4, dims: 4, scaling: RopeScaling::Linear { factor: 8.0 }, factors: false };
        assert_eq!(Turn::new(4, linear, None).unwrap().speeds, [0.125, 0.125 / 100.0]);
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            attention_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 64,
        };
        assert!(Turn::new(4, Rope { scaling, ..linear }, None).is_none());
    }
}
