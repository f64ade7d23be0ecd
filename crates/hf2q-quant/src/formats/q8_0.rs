//! `q8_0`: 32 values as signed bytes, `x = d * q`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | codes, i8 |

use std::ops::Range;

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
    block[D..D + 2].copy_from_slice(&crate::half::f32_to_f16(d).to_le_bytes());
    let mut inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    if inverse.is_infinite() {
        // Values so small decode to zero whatever the code. The reference leaves code 0.
        inverse = 0.0;
    }
    for (q, v) in block[QS].iter_mut().zip(x) {
        *q = round(v * inverse) as u8;
    }
}

/// Nearest integer, halves away from zero. The addend is the largest number below one half, so that the number
/// below one half does not round up; truncation does the rest.
fn round(v: f32) -> i8 {
    (v + 0.499_999_97_f32.copysign(v)) as i32 as i8
}
