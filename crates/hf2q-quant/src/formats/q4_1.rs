//! `q4_1`: 32 values as 4-bit codes above a minimum, `x = d * q + m`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..20 | codes: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::direct::{self, Direct, Values};
use crate::groups::Side;
use crate::lanes::{Floats, LANES, Simd};
use crate::search::{Ladder, affine};
use crate::weighted::{self, Weighted};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 20;
/// Offset of the scale.
pub const D: usize = 0;
/// Offset of the minimum.
pub const M: usize = 2;
/// Codes.
pub const QS: Range<usize> = 4..20;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (super::half_at(block, D), super::half_at(block, M));
    let (low, high) = out.split_at_mut(LEN / 2);
    for ((&q, low), high) in block[QS].iter().zip(low).zip(high) {
        *low = f32::from(q & 15) * d + m;
        *high = f32::from(q >> 4) * d + m;
    }
}

/// Encodes one block of finite values.
#[inline(always)]
pub fn quantize_block(x: &[f32; LEN], block: &mut [u8; BYTES]) {
    let (min, max) = super::range(x);
    let d = (max - min) / 15.0;
    super::put_half(block, D, d);
    super::put_half(block, M, min);
    let inverse = super::inverse(d);
    let (low, high) = x.split_at(LEN / 2);
    for ((q, low), high) in block[QS].iter_mut().zip(low).zip(high) {
        *q = code((low - min) * inverse) | (code((high - min) * inverse) << 4);
    }
}

/// Nearest code to a value in units of the scale; halves go up.
#[inline(always)]
fn code(v: f32) -> u8 {
    ((v + 0.5) as i32).min(15) as u8
}

/// Encodes blocks of finite values.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    direct::encode::<Format, BYTES>(x, out);
}

/// Scales that a search tries.
const LADDER: Ladder = Ladder { top: 15, first: -0.9, step: 0.05, steps: 36, absolute: false, bounded: true };

/// Encodes whole rows of finite values with a weight for each column.
pub(crate) fn quantize_weighted(x: &[f32], weights: &[f32], out: &mut [u8]) {
    weighted::encode::<Format, BYTES>(x, weights, out);
}

pub(super) struct Format;

impl Weighted<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(s: S, x: &Side, weights: &Side, blocks: &mut [[u8; BYTES]]) {
        let fit = affine(s, x, weights, LADDER);
        let (scales, minimums) = (fit.scale.to_array(), (-fit.below).to_array());
        let mut codes = [[0; LANES]; LEN];
        for (x, codes) in x.iter().zip(&mut codes) {
            fit.codes(s, Floats::load(s, x), LADDER).store_bytes(codes);
        }
        for (lane, block) in blocks.iter_mut().enumerate() {
            super::put_half(block, D, scales[lane]);
            super::put_half(block, M, minimums[lane]);
            super::put_nibbles(&super::lane(&codes, lane), &mut block[QS]);
        }
    }

    fn encode_unimportant(_: &[f32; LEN], _: &mut [u8; BYTES]) {
        // The search keeps its first fit.
    }
}

impl Direct<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(values: &Values<'_, S>, block: &mut [u8; BYTES]) {
        let (min, max) = values.range();
        let d = (max - min) / 15.0;
        super::put_half(block, D, d);
        super::put_half(block, M, min);
        let (inverse, min, half) = (values.splat(super::inverse(d)), values.splat(min), values.splat(0.5));
        let [low, high] = values.halves();
        let codes = direct::codes(
            [(low - min) * inverse + half, (high - min) * inverse + half],
            values.splat_int(15),
        );
        direct::put_nibbles(codes, &mut block[QS]);
    }
}
