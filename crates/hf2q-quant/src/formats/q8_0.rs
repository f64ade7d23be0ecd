//! `q8_0`: 32 values as signed bytes, `x = d * q`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | codes, i8 |

use std::ops::Range;

use crate::direct::{self, Direct, Values};
use crate::lanes::{LANES, Simd};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 34;
/// Offset of the scale.
pub const D: usize = 0;
/// Codes.
pub const QS: Range<usize> = 2..34;

/// The scale, a 127th of the largest magnitude, must stay finite in half precision.
pub(crate) const LIMIT: f32 = 127.0 * super::F16_OVERFLOW;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    for (&q, out) in block[QS].iter().zip(out) {
        *out = f32::from(q as i8) * d;
    }
}

/// Encodes one block of finite values below the limit.
pub fn quantize_block(x: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = super::max_magnitude(x) / 127.0;
    super::put_half(block, D, d);
    // Values so small that the inverse is infinite decode to zero whatever the code. The reference leaves code 0.
    let inverse = super::inverse(d);
    for (q, v) in block[QS].iter_mut().zip(x) {
        *q = round(v * inverse) as u8;
    }
}

/// What is added before the fraction is cut off, for halves to go away from zero. The largest number below one
/// half, so that this number itself does not round up.
const BELOW_HALF: f32 = 0.499_999_97;

/// Nearest integer, halves away from zero.
fn round(v: f32) -> i8 {
    (v + BELOW_HALF.copysign(v)) as i32 as i8
}

/// Encodes blocks of finite values below the limit.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    direct::encode::<Format, BYTES>(x, out);
}

pub(super) struct Format;

impl Direct<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(values: &Values<'_, S>, block: &mut [u8; BYTES]) {
        let d = values.most() / 127.0;
        super::put_half(block, D, d);
        let (inverse, zero) = (values.splat(super::inverse(d)), values.splat(0.0));
        let below_half = values.splat(BELOW_HALF);
        for (x, q) in values.halves().into_iter().zip(block[QS].as_chunks_mut::<LANES>().0) {
            let v = x * inverse;
            v.less(zero).select(v - below_half, v + below_half).truncate().store_bytes(q);
        }
    }
}
