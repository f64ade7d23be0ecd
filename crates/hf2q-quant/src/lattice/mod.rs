//! Weights that already lie on the lattice of `q4_0`, as training for that format leaves them.
//!
//! Such checkpoints hold bf16 values, and within each block of 32 along a row every value is the rounding of
//! `d * c` with one step `d` for the block and integers `c` in -8..=7. The ordinary encoder divides the largest
//! magnitude by 8, which finds the step only where that value has code -8: elsewhere every value of the block
//! moves. Here the step is found, so decoding gives the checkpoint back.
//!
//! The largest magnitude is `k` steps for some `k` in 1..=8, and `k` determines all other codes: each value
//! bounds the step to the interval whose multiples round to it, and a block lies on a lattice if the intervals
//! of all its values meet. The scale is the half precision number there with the least squared error. A block may
//! lie on several lattices (half a step makes a finer one): any that is exact in half precision will do.
//!
//! **Chance.** A value between 0 and the largest magnitude `m` fits a given `k` if it falls into one of the
//! windows around the multiples `c m / k`. Rounding makes a window at most `2^-7 c m / k` wide and the uncertainty
//! of the step as much again, so those below `m` cover at most `2^-7 (k - 1)` of the range, less than 1/16. A
//! block of `n` different magnitudes fits one of the 8 lattices by chance in less than `8 / 16^(n - 1)` of all
//! cases, and one of 32 in less than `2^-120`.

mod direct;
mod search;

use std::ops::AddAssign;

use hf2q_gguf::TensorType;

use self::search::Block;
use crate::QuantError;
use crate::formats::q4_0::{LEN, LIMIT};

/// The sign of half precision.
const NEGATIVE: u16 = 0x8000;

/// How far rounding can move a quotient of two values, relative to itself: by `2^-8` for each.
const TOLERANCE: f32 = 1.02 / 128.0;

/// Largest magnitude of a code.
const MOST_CODE: u8 = 8;

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
/// that lies on no lattice gets the best of many scales, the ordinary encoder's among them; only such blocks take
/// longer than in the ordinary encoder. Blocks do not depend on each other, so rows may be encoded in any grouping.
///
/// # Errors
/// As [`quantize`](crate::quantize); `dst` is then untouched.
pub fn quantize(src: &[f32], dst: &mut Vec<u8>) -> Result<Fit, QuantError> {
    const TY: TensorType = TensorType::Q4_0;
    let (len, block) = (src.len(), LEN);
    let bytes = TY.row_bytes(len).ok_or(QuantError::RaggedValues { ty: TY, len, block })?;
    crate::dispatch::refuse_from(TY, LIMIT, src)?;
    let start = dst.len();
    dst.resize(start + bytes, 0);
    Ok(Fit { blocks: (len / LEN) as u64, exact: direct::quantize(src, &mut dst[start..]) })
}

/// To bf16 and back, ties to even. Infinity and NaN stay what they are.
#[inline(always)]
fn round(v: f32) -> f32 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    f32::from_bits(if bits & 0x7f80_0000 == 0x7f80_0000 { bits } else { rounded })
}

/// The steps of which `code` round to a value. The midpoints between a bf16 and its neighbours are half a unit of
/// its last bit away, in the bits of a single also where the exponent changes.
#[inline(always)]
fn interval(value: f32, code: f32) -> (f32, f32) {
    const HALF_UNIT: u32 = 0x8000;
    let (bits, inverse) = (value.to_bits(), 1.0 / code);
    let below = f32::from_bits(bits.wrapping_sub(HALF_UNIT)) * inverse;
    let above = f32::from_bits(bits.wrapping_add(HALF_UNIT)) * inverse;
    if code == 0.0 { (0.0, f32::INFINITY) } else { (below, above) }
}

/// Singles of this size are integers, and their last bits count from 0.
const INTEGERS_ONLY: f32 = 1.5 * (1 << 23) as f32;

/// The nearest integer, ties to even, below `2^22`.
#[inline(always)]
fn nearest_integer(v: f32) -> f32 {
    (v + INTEGERS_ONLY) - INTEGERS_ONLY
}

/// Parts of a sum: as many as the widest instruction set has lanes, so that all add in one order.
const LANES: usize = 16;

/// The step at which these codes have the least squared error.
#[inline(always)]
fn least_squares(x: &[f32; LEN], codes: &[f32; LEN]) -> f32 {
    let (mut product, mut square) = ([0.0; LANES], [0.0; LANES]);
    for (x, codes) in x.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            product[i] += x[i] * codes[i];
            square[i] += codes[i] * codes[i];
        }
    }
    sum(product) / sum(square)
}

#[inline(always)]
fn sum(mut parts: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            parts[i] += parts[i + half];
        }
        half /= 2;
    }
    parts[0]
}
