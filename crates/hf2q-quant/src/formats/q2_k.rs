//! `q2_k`: 256 values in 16 groups of 16, 2-bit codes above a minimum, `x = d * scale * q - dmin * min`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..16 | byte `g`: scale of group `g` low, its minimum high |
//! | 16..80 | codes: of each half of 128 values, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 84;
/// Scales and minimums.
pub const SCALES: Range<usize> = 0..16;
/// Codes.
pub const QS: Range<usize> = 16..80;
/// Offset of the scale of scales.
pub const D: usize = 80;
/// Offset of the scale of minimums.
pub const DMIN: usize = 82;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (super::half_at(block, D), super::half_at(block, DMIN));
    let (qs, scales) = (&block[QS], &block[SCALES]);
    for (g, (out, &packed)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let (scale, min) = (d * f32::from(packed & 15), dmin * f32::from(packed >> 4));
        let (first, shift) = (g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        for (out, &q) in out.iter_mut().zip(&qs[first..first + 16]) {
            *out = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}
