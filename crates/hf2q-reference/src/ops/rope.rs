use std::f64::consts::TAU;

use hf2q_plan::{Pairing, Rope, RopeParams, Yarn};

use super::{State, round};

pub(super) fn run(o: &Rope, s: &mut State<'_>) {
    let frequencies = frequencies(&o.rope, o.rope.factors.map(|id| s.memory.weight(id)));
    for (i, r) in s.step_rows(o.x).into_iter().enumerate() {
        let position = s.step.rows[r].position;
        let out = rotated(s.memory.row(o.x, i), o.head_dim, (&o.rope, &frequencies), position);
        s.memory.set_row(o.out, i, &out);
    }
}

/// Angle per position of each pair.
pub(super) fn frequencies(p: &RopeParams, factors: Option<&[f32]>) -> Vec<f64> {
    let dims = p.dims as f64;
    let base = f64::from(p.base);
    let scale = f64::from(p.freq_scale);
    let frequency = |i: usize| {
        let factor = factors.map_or(1.0, |f| f64::from(f[i]));
        let extrapolated = base.powf(-2.0 * i as f64 / dims) / factor;
        let interpolated = scale * extrapolated;
        let Some(yarn) = p.yarn else { return interpolated };
        let keep = kept(&yarn, i, dims, base);
        interpolated * (1.0 - keep) + extrapolated * keep
    };
    (0..p.dims / 2).map(frequency).collect()
}

/// How much of pair `i` is not interpolated: 1 for pairs that turn `beta_fast` times or more over the original
/// context, 0 for those that turn `beta_slow` times or less, linear between them.
fn kept(yarn: &Yarn, i: usize, dims: f64, base: f64) -> f64 {
    let pair_that_turns = |turns: f32| {
        let context = f64::from(yarn.original_context);
        dims * (context / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln())
    };
    let low = pair_that_turns(yarn.beta_fast).floor().max(0.0);
    let high = pair_that_turns(yarn.beta_slow).ceil().min(dims - 1.0);
    let ramp = (i as f64 - low) / (high - low).max(0.001);
    (1.0 - ramp.clamp(0.0, 1.0)) * f64::from(yarn.ext_factor)
}

/// One row: every head turned to `position`.
pub(super) fn rotated(
    x: &[f32],
    head_dim: usize,
    (p, frequencies): (&RopeParams, &[f64]),
    position: u32,
) -> Vec<f32> {
    let mut out = x.to_vec();
    let half = p.dims / 2;
    for (x, out) in x.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        for (i, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match p.pairing {
                Pairing::Halves => (i, i + half),
                Pairing::Adjacent => (2 * i, 2 * i + 1),
            };
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (sin, cos) = (sin * f64::from(p.magnitude), cos * f64::from(p.magnitude));
            let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
            out[a] = round(xa * cos - xb * sin);
            out[b] = round(xa * sin + xb * cos);
        }
    }
    out
}
