//! Weights that already lie on the lattice of `q4_0`, as training for that format leaves them.
//!
//! Such checkpoints hold bf16 values, and within each block of 32 along a row every value is the rounding of
//! `d * c` with one step `d` for the block and integers `c` in -8..=7. The ordinary encoder divides the largest
//! magnitude by 8, which finds the step only where that value has code -8: elsewhere every value of the block
//! moves. Here the step is found, so decoding gives the checkpoint back.
//!
//! The largest magnitude is `k` steps for some `k` in 1..=8, and `k` determines all other codes: each value
//! bounds the step to the interval whose multiples round to it, and a block lies on a lattice if the intervals
//! of all its values meet. The coarsest lattice (smallest `k`) comes first: half a step is the same lattice, and
//! a larger scale is represented better in half precision.
//!
//! **Chance.** A value between 0 and the largest magnitude `m` fits a given `k` if it falls into one of the
//! windows around the multiples `c m / k`. Rounding makes a window at most `2^-7 c m / k` wide and the uncertainty
//! of the step as much again, so those below `m` cover at most `2^-7 (k - 1)` of the range, less than 1/16. A
//! block of `n` different magnitudes fits one of the 8 lattices by chance in less than `8 / 16^(n - 1)` of all
//! cases, and one of 32 in less than `2^-120`.

use std::ops::AddAssign;

use hf2q_gguf::TensorType;

use crate::QuantError;
use crate::formats::max_magnitude;
use crate::formats::q4_0::{self, BYTES, D, LEN, QS};
use crate::half::{f16_to_f32, f32_to_f16};

/// Largest magnitude of a code.
const MOST_CODE: u8 = 8;

/// Sums and extremes are kept in this many parts, which is the same on every machine and lets compilers use vectors.
const LANES: usize = 8;

/// How many blocks were encoded, and how many of them decode to the values given once these and the decoded
/// ones are rounded to bf16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that lose nothing.
    pub exact: u64,
}

impl AddAssign for Fit {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.exact += other.exact;
    }
}

/// Whether a sample of a tensor's rows lies on the lattice of `q4_0`. False for values that would fit by chance:
/// blocks of a single magnitude say nothing.
pub fn detect(sample: &[f32]) -> bool {
    Evidence::of(sample).is_lattice()
}

/// Rows that are enough to decide about a tensor, spread evenly over it (experts of one tensor are all seen).
pub fn sample_rows(rows: usize, columns: usize) -> impl Iterator<Item = usize> {
    const BLOCKS: usize = 2048;
    const ROWS: usize = 128;
    let wanted = BLOCKS.div_ceil((columns / LEN).max(1)).max(ROWS).min(rows);
    (0..wanted).map(move |i| (i as u128 * rows as u128 / wanted as u128) as usize)
}

/// What blocks say about a lattice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Blocks of at least two different magnitudes.
    blocks: u64,
    /// Those of them that lie on a lattice.
    fitting: u64,
    /// Binary logarithm of how improbable these are by chance.
    bits: u64,
}

impl Evidence {
    /// Looks at whole blocks; a rest is left out.
    pub fn of(src: &[f32]) -> Self {
        let mut found = Self::default();
        for x in src.as_chunks().0 {
            found.see(x);
        }
        found
    }

    fn see(&mut self, x: &[f32; LEN]) {
        let block = Block::new(x);
        if block.most == 0.0 {
            return;
        }
        let magnitudes = (1..=MOST_CODE).find_map(|k| block.step(k)).map(|step| step.magnitudes());
        match magnitudes {
            Some(0 | 1) => {}
            Some(n) => {
                self.blocks += 1;
                self.fitting += 1;
                self.bits += 4 * (n - 1) - 3;
            }
            None => self.blocks += 1,
        }
    }

    /// Whether nine in ten of the blocks lie on a lattice, and chance would not do that in `2^64` tensors: there
    /// are less than `2^(blocks / 2)` ways to leave a tenth out.
    pub fn is_lattice(&self) -> bool {
        const IMPROBABLE: u64 = 64;
        self.fitting * 10 >= self.blocks * 9 && self.bits >= IMPROBABLE + self.blocks / 2
    }
}

impl AddAssign for Evidence {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.fitting += other.fitting;
        self.bits += other.bits;
    }
}

/// Encodes values of a tensor that [`detect`] recognizes as blocks of `q4_0` and appends them to `dst`. A block
/// that lies on no lattice gets the best of many scales, the ordinary encoder's among them. Blocks do not depend
/// on each other, so rows may be encoded in any grouping.
///
/// # Errors
/// As [`quantize`](crate::quantize); `dst` is then untouched.
pub fn quantize(src: &[f32], dst: &mut Vec<u8>) -> Result<Fit, QuantError> {
    const TY: TensorType = TensorType::Q4_0;
    let (len, block) = (src.len(), LEN);
    let bytes = TY.row_bytes(len).ok_or(QuantError::RaggedValues { ty: TY, len, block })?;
    crate::dispatch::refuse_from(TY, q4_0::LIMIT, src)?;
    let start = dst.len();
    dst.resize(start + bytes, 0);
    let mut fit = Fit { blocks: (len / LEN) as u64, exact: 0 };
    for (x, out) in src.as_chunks().0.iter().zip(dst[start..].as_chunks_mut().0) {
        fit.exact += u64::from(quantize_block(x, out));
    }
    Ok(fit)
}

/// Encodes one block. Returns whether it is exact.
fn quantize_block(x: &[f32; LEN], out: &mut [u8; BYTES]) -> bool {
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
struct Block<'a> {
    x: &'a [f32; LEN],
    /// Magnitudes rounded to bf16.
    rounded: [f32; LEN],
    /// The largest of them.
    most: f32,
}

/// A lattice that all values of a block lie on.
struct Step {
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
    fn magnitudes(&self) -> u64 {
        let seen = self.codes.iter().fold(0u32, |seen, &c| seen | (1 << c as u32));
        u64::from((seen >> 1).count_ones())
    }
}

impl<'a> Block<'a> {
    fn new(x: &'a [f32; LEN]) -> Self {
        let rounded = x.map(|v| round(v.abs()));
        Self { x, rounded, most: max_magnitude(&rounded) }
    }

    /// The lattice on which the largest magnitude is `k` steps, if all values lie on it.
    fn step(&self, k: u8) -> Option<Step> {
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
        const TOLERANCE: f32 = 1.02 / 128.0;
        self.rounded.as_chunks::<LANES>().0.iter().all(|values| {
            let mut beyond = 0;
            for &v in values {
                let steps = v * inverse;
                let code = nearest_integer(steps);
                beyond |= u32::from((steps - code).abs() > code * TOLERANCE);
            }
            beyond == 0
        })
    }

    /// The steps whose multiples round to the values. The midpoints between a bf16 and its neighbours are half a
    /// unit of its last bit away, in the bits of a single also where the exponent changes.
    fn bounds(&self, codes: &[f32; LEN]) -> (f32, f32) {
        const HALF_UNIT: u32 = 0x8000;
        let (mut low, mut high) = ([0.0; LANES], [f32::INFINITY; LANES]);
        for (values, codes) in self.rounded.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
            for i in 0..LANES {
                let (bits, is_zero) = (values[i].to_bits(), codes[i] == 0.0);
                let inverse = 1.0 / codes[i];
                let below = f32::from_bits(bits.wrapping_sub(HALF_UNIT)) * inverse;
                let above = f32::from_bits(bits.wrapping_add(HALF_UNIT)) * inverse;
                let (below, above) = if is_zero { (0.0, f32::INFINITY) } else { (below, above) };
                low[i] = if below > low[i] { below } else { low[i] };
                high[i] = if above < high[i] { above } else { high[i] };
            }
        }
        // A product may be a unit of a single's last place off; exactness is decided by decoding.
        const SLACK: f32 = 1.0 + 4.0 * f32::EPSILON;
        (low.into_iter().fold(0.0, f32::max), high.into_iter().fold(f32::INFINITY, f32::min) * SLACK)
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

/// The sign of half precision.
const NEGATIVE: u16 = 0x8000;

/// Writes codes -8..=7.
fn put(half: u16, codes: &[f32; LEN], out: &mut [u8; BYTES]) {
    out[D..D + 2].copy_from_slice(&half.to_le_bytes());
    let nibbles = codes.map(|c| (c + 8.0 + INTEGERS_ONLY).to_bits() as u8);
    for (i, byte) in out[QS].iter_mut().enumerate() {
        *byte = nibbles[i] | (nibbles[i + LEN / 2] << 4);
    }
}

/// The step at which these codes have the least squared error.
fn least_squares(x: &[f32; LEN], codes: &[f32; LEN]) -> f32 {
    let (mut product, mut square) = ([0.0; LANES], [0.0; LANES]);
    for (x, codes) in x.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            product[i] += x[i] * codes[i];
            square[i] += codes[i] * codes[i];
        }
    }
    product.iter().sum::<f32>() / square.iter().sum::<f32>()
}

/// Whether positive half precision bits are a finite number above 0.
fn is_scale(half: u16) -> bool {
    const INFINITE: u16 = 0x7c00;
    (1..INFINITE).contains(&half)
}

/// To bf16 and back, ties to even. Infinity and NaN stay what they are.
#[inline]
fn round(v: f32) -> f32 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    f32::from_bits(if bits & 0x7f80_0000 == 0x7f80_0000 { bits } else { rounded })
}

/// Singles of this size are integers, and their last bits count from 0.
const INTEGERS_ONLY: f32 = 1.5 * (1 << 23) as f32;

/// The nearest integer, ties to even, below `2^22`.
#[inline]
fn nearest_integer(v: f32) -> f32 {
    (v + INTEGERS_ONLY) - INTEGERS_ONLY
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
