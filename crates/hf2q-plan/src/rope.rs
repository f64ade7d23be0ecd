//! Angles of a rotation: one formula for all backends.

use std::f64::consts::TAU;

use crate::op::{RopeParams, Yarn};

impl RopeParams {
    /// The angle per position of each of the `dims/2` pairs, in radians; `factors` are the values of
    /// [`RopeParams::factors`].
    ///
    /// # Panics
    /// If there are fewer factors than pairs: a checked recording has as many.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f64> {
        (0..self.dims / 2).map(|i| frequency(self, factors, i)).collect()
    }
}

fn frequency(p: &RopeParams, factors: Option<&[f32]>, i: usize) -> f64 {
    let (base, dims) = (f64::from(p.base), p.dims as f64);
    let factor = factors.map_or(1.0, |f| f64::from(f[i]));
    let plain = base.powf(-2.0 * i as f64 / dims) / factor;
    let scaled = f64::from(p.freq_scale) * plain;
    let keep = p.yarn.map_or(0.0, |yarn| kept(&yarn, i, (dims, base)));
    scaled * (1.0 - keep) + plain * keep
}

/// The share of pair `i` that YaRN does not interpolate: 1 where the pair turns often within the original context, 0
/// where it turns seldom.
fn kept(yarn: &Yarn, i: usize, (dims, base): (f64, f64)) -> f64 {
    let context = f64::from(yarn.original_context);
    let pair = |turns: f32| dims * (context / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln());
    let low = pair(yarn.beta_fast).floor().max(0.0);
    let high = pair(yarn.beta_slow).ceil().min(dims - 1.0);
    let ramp = (i as f64 - low) / (high - low).max(0.001);
    (1.0 - ramp.clamp(0.0, 1.0)) * f64::from(yarn.ext_factor)
}
