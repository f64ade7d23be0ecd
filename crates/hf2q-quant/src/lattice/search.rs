//! Blocks that need a choice among lattices, or lie on none.

use super::{INTEGERS_ONLY, MOST_CODE, NEGATIVE, TOLERANCE, interval, least_squares, nearest_integer, round};
use crate::formats::max_magnitude;
use crate::formats::q4_0::{self, BYTES, D, LEN, QS};
use crate::half::{f16_to_f32, f32_to_f16};

/// Encodes one block with the best of all lattices, from the coarsest on: its scale is the largest, and half
/// precision represents that best. Returns whether it is exact.
#[cold]
#[inline(never)]
pub(super) fn quantize_block(x: &[f32; LEN], out: &mut [u8; BYTES]) -> bool {
    let block = Block::new(x);
    if block.most == 0.0 {
        q4_0::quantize_block(x, out);
        return true;
    }
    let mut best: Option<(Scale, Step)> = None;
    for step in (1..=MOST_CODE).filter_map(|k| block.step(k)) {
        let Some(scale) = block.scale(&step) else { continue };
        if scale.error == 0.0 {
            block.write(&step, scale.half, out);
            return true;
        }
        if best.as_ref().is_none_or(|(least, _)| scale.error < least.error) {
            best = Some((scale, step));
        }
    }
    match best {
        Some((scale, step)) => block.write(&step, scale.half, out),
        None => nearest(x, out),
    }
    false
}

/// A block's values as bf16 would hold them.
pub(super) struct Block<'a> {
    x: &'a [f32; LEN],
    /// Magnitudes rounded to bf16.
    rounded: [f32; LEN],
    /// The largest of them.
    pub(super) most: f32,
}

/// A lattice that all values of a block lie on.
pub(super) struct Step {
    /// The code of the largest magnitude.
    k: u8,
    /// Magnitudes in steps.
    codes: [f32; LEN],
    /// The smallest step whose multiples round to the values.
    low: f32,
    /// The largest one.
    high: f32,
}

/// A scale for the codes of a step.
struct Scale {
    /// Half precision bits of its magnitude.
    half: u16,
    /// 0 if the decoded values round to the given ones, else the squared error.
    error: f32,
}

impl Step {
    /// Different magnitudes, 0 aside.
    pub(super) fn magnitudes(&self) -> u64 {
        let seen = self.codes.iter().fold(0u32, |seen, &c| seen | (1 << c as u32));
        u64::from((seen >> 1).count_ones())
    }
}

impl<'a> Block<'a> {
    pub(super) fn new(x: &'a [f32; LEN]) -> Self {
        let rounded = x.map(|v| round(v.abs()));
        Self { x, rounded, most: max_magnitude(&rounded) }
    }

    /// The lattice on which the largest magnitude is `k` steps, if all values lie on it.
    pub(super) fn step(&self, k: u8) -> Option<Step> {
        let inverse = f32::from(k) / self.most;
        let in_range = self.most < q4_0::LIMIT && inverse.is_finite();
        if !in_range || !self.may_fit(inverse) {
            return None;
        }
        let codes = self.rounded.map(|v| nearest_integer(v * inverse));
        let (low, high) = self.bounds(&codes);
        let one_sign = || k < MOST_CODE || self.extremes_agree(&codes);
        (low <= high && one_sign()).then_some(Step { k, codes, low, high })
    }

    /// False if a value is farther from a multiple of the step than rounding can have moved it and the largest
    /// magnitude, by `2^-8` of themselves each. Everything that the bounds of the step accept passes.
    fn may_fit(&self, inverse: f32) -> bool {
        self.rounded.iter().all(|v| {
            let steps = v * inverse;
            let code = nearest_integer(steps);
            (steps - code).abs() <= code * TOLERANCE
        })
    }

    /// The steps whose multiples round to the values.
    fn bounds(&self, codes: &[f32; LEN]) -> (f32, f32) {
        // A product may be a unit of a single's last place off; exactness is decided by decoding.
        const SLACK: f32 = 1.0 + 4.0 * f32::EPSILON;
        let each = self.rounded.iter().zip(codes).map(|(&v, &c)| interval(v, c));
        let both = |(low, high): (f32, f32), (below, above)| (low.max(below), high.min(above));
        let (low, high) = each.fold((0.0, f32::INFINITY), both);
        (low, high * SLACK)
    }

    /// Code -8 has no positive counterpart.
    fn extremes_agree(&self, codes: &[f32; LEN]) -> bool {
        let (mut plus, mut minus) = (false, false);
        for (&v, &c) in self.x.iter().zip(codes) {
            let extreme = c == f32::from(MOST_CODE);
            plus |= extreme & v.is_sign_positive();
            minus |= extreme & v.is_sign_negative();
        }
        !(plus && minus)
    }

    /// The scale of least squared error among those that are exact; if none is, among all. `None` if half
    /// precision has none.
    fn scale(&self, step: &Step) -> Option<Scale> {
        let best = least_squares(&self.x.map(f32::abs), &step.codes);
        let half = f32_to_f16(best.clamp(step.low, step.high));
        let is_exact = |&half: &u16| is_scale(half) && self.is_exact(&step.codes, f16_to_f32(half));
        if is_exact(&half) {
            return Some(Scale { half, error: 0.0 });
        }
        let distance = |half: &u16| (f16_to_f32(*half) - best).abs();
        let beside = [half.saturating_sub(1), half.saturating_add(1)].into_iter().filter(is_exact);
        if let Some(half) = beside.min_by(|a, b| distance(a).total_cmp(&distance(b))) {
            return Some(Scale { half, error: 0.0 });
        }
        let half = f32_to_f16(best);
        is_scale(half).then(|| Scale { half, error: self.error(&step.codes, f16_to_f32(half)) })
    }

    fn is_exact(&self, codes: &[f32; LEN], scale: f32) -> bool {
        let differing =
            self.rounded.iter().zip(codes).fold(0, |n, (&v, &c)| n | u32::from(round(c * scale) != v));
        differing == 0
    }

    /// Squared error, above 0.
    fn error(&self, codes: &[f32; LEN], scale: f32) -> f32 {
        let error: f32 = self.x.iter().zip(codes).map(|(&v, &c)| (v.abs() - c * scale).powi(2)).sum();
        error.max(f32::MIN_POSITIVE)
    }

    fn write(&self, step: &Step, half: u16, out: &mut [u8; BYTES]) {
        // The largest magnitude takes code -8, so the scale has the other sign.
        let is_extreme = |&(_, &c): &(&f32, &f32)| c == f32::from(MOST_CODE);
        let extreme = self.x.iter().zip(&step.codes).find(is_extreme).filter(|_| step.k == MOST_CODE);
        let sign = if extreme.is_some_and(|(v, _)| v.is_sign_positive()) { -1.0 } else { 1.0 };
        let mut codes = step.codes;
        for (c, v) in codes.iter_mut().zip(self.x) {
            *c *= sign * v.signum();
        }
        put(half | if sign < 0.0 { NEGATIVE } else { 0 }, &codes, out);
    }
}

/// Writes codes -8..=7.
fn put(half: u16, codes: &[f32; LEN], out: &mut [u8; BYTES]) {
    out[D..D + 2].copy_from_slice(&half.to_le_bytes());
    let nibbles = codes.map(|c| (c + 8.0 + INTEGERS_ONLY).to_bits() as u8);
    for (i, byte) in out[QS].iter_mut().enumerate() {
        *byte = nibbles[i] | (nibbles[i + LEN / 2] << 4);
    }
}

/// Whether positive half precision bits are a finite number above 0.
fn is_scale(half: u16) -> bool {
    const INFINITE: u16 = 0x7c00;
    (1..INFINITE).contains(&half)
}

/// The block of least squared error among the ordinary encoder's and those whose largest magnitude has any code
/// of either sign.
fn nearest(x: &[f32; LEN], out: &mut [u8; BYTES]) {
    q4_0::quantize_block(x, out);
    let mut least = squared_error(x, out);
    let most = max_magnitude(x);
    for k in 1..=MOST_CODE {
        for sign in [1.0, -1.0] {
            let mut block = [0; BYTES];
            encode_at(x, sign * most / f32::from(k), &mut block);
            let error = squared_error(x, &block);
            if error < least {
                (least, *out) = (error, block);
            }
        }
    }
}

/// Encodes near a step: its codes, and the scale that fits these best.
fn encode_at(x: &[f32; LEN], step: f32, out: &mut [u8; BYTES]) {
    let codes = |step: f32| x.map(|v| nearest_integer(v / step).clamp(-8.0, 7.0));
    let half = f32_to_f16(least_squares(x, &codes(step)));
    if !is_scale(half & !NEGATIVE) {
        return;
    }
    put(half, &codes(f16_to_f32(half)), out);
}

fn squared_error(x: &[f32; LEN], block: &[u8; BYTES]) -> f32 {
    let mut decoded = [0.0; LEN];
    q4_0::dequantize_block(block, &mut decoded);
    x.iter().zip(decoded).map(|(&v, y)| (v - y).powi(2)).sum()
}
