//! `tq2_0`: 256 values of three levels, two bits each, `x = d * (q - 1)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..64 | of each half of 128 values, byte `m` of 32 holds values `m`, `m + 32`, `m + 64`, `m + 96` from the low bits up |
//! | 64..66 | `d`, f16 |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 66;
/// Values.
pub const QS: Range<usize> = 0..64;
/// Offset of the scale.
pub const D: usize = 64;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    for (part, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let bytes = &block[QS][part / 4 * 32..][..32];
        for (&byte, out) in bytes.iter().zip(out) {
            *out = f32::from((byte >> (2 * (part % 4)) & 3) as i8 - 1) * d;
        }
    }
}
