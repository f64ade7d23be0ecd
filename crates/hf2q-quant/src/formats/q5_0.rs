//! `q5_0`: 32 values as 5-bit codes around 16, `x = d * (q - 16)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..6 | fifth bits: bit `j` of the little-endian word belongs to value `j` |
//! | 6..22 | low four bits: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::direct::{self, Direct, Values};
use crate::groups::Side;
use crate::lanes::{Floats, LANES, Simd};
use crate::search::symmetric;
use crate::weighted::{self, Weighted};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 22;
/// Offset of the scale.
pub const D: usize = 0;
/// Fifth bits.
pub const QH: Range<usize> = 2..6;
/// Low four bits.
pub const QS: Range<usize> = 6..22;

/// The scale, a sixteenth of the largest magnitude, must stay finite in half precision.
pub(crate) const LIMIT: f32 = 16.0 * super::F16_OVERFLOW;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let fifth = u32::from_le_bytes(*super::part(block, QH));
    let (low, high) = out.split_at_mut(LEN / 2);
    for (j, ((&q, low), high)) in block[QS].iter().zip(low).zip(high).enumerate() {
        let upper = [(fifth >> j) & 1, (fifth >> (j + 16)) & 1].map(|bit| (bit as i32) << 4);
        *low = ((i32::from(q & 15) | upper[0]) - 16) as f32 * d;
        *high = ((i32::from(q >> 4) | upper[1]) - 16) as f32 * d;
    }
}

/// Encodes one block of finite values. The value of the largest magnitude (the first of them) gets code 0, so the
/// scale carries its negated sign.
#[inline(always)]
pub fn quantize_block(x: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = super::extreme(x) / -16.0;
    super::put_half(block, D, d);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let codes = if inverse.is_infinite() {
        // Values so small decode to zero whatever the code. The reference leaves code 0.
        [0; LEN]
    } else {
        x.map(|v| ((v * inverse + 16.5) as i32).min(31) as u8)
    };
    super::put_fifths(&codes, &mut block[2..]);
}

/// Encodes blocks of finite values below the limit.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    direct::encode::<Format, BYTES>(x, out);
}

/// Encodes whole rows of finite values with a weight for each column.
pub(crate) fn quantize_weighted(x: &[f32], weights: &[f32], out: &mut [u8]) {
    weighted::encode::<Format, BYTES>(x, weights, out);
}

pub(super) struct Format;

impl Weighted<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(s: S, x: &Side, weights: &Side, blocks: &mut [[u8; BYTES]]) {
        let fit = symmetric(s, x, Some(weights), 16);
        let scales = fit.scale.to_array();
        let mut codes = [[0; LANES]; LEN];
        for (x, codes) in x.iter().zip(&mut codes) {
            fit.codes(s, Floats::load(s, x)).store_bytes(codes);
        }
        for (lane, block) in blocks.iter_mut().enumerate() {
            super::put_half(block, D, scales[lane]);
            super::put_fifths(&super::lane(&codes, lane), &mut block[QH.start..]);
        }
    }

    fn encode_unimportant(x: &[f32; LEN], block: &mut [u8; BYTES]) {
        quantize_block(x, block);
    }
}

impl Direct<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(values: &Values<'_, S>, block: &mut [u8; BYTES]) {
        let d = values.extreme() / -16.0;
        super::put_half(block, D, d);
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let (inverse, middle) = if inverse.is_infinite() { (0.0, 0.0) } else { (inverse, 16.5) };
        let (inverse, middle) = (values.splat(inverse), values.splat(middle));
        let [low, high] = values.halves();
        let codes = direct::codes([low * inverse + middle, high * inverse + middle], values.splat_int(31));
        direct::put_fifths(values.s(), codes, &mut block[QH.start..]);
    }
}
