//! `q4_k`: 256 values in 8 groups of 32, 4-bit codes above a minimum, `x = d * scale * q - dmin * min`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minimums, see [`k4_scale_min`](crate::layout::k4_scale_min) |
//! | 16..144 | codes: of each 64 values, byte `l` of 32 holds value `l` low, value `l + 32` high |

use std::ops::Range;

use crate::layout::k4_scale_min;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 144;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Offset of the scale of minimums.
pub const DMIN: usize = 2;
/// Packed scales and minimums.
pub const SCALES: Range<usize> = 4..16;
/// Codes.
pub const QS: Range<usize> = 16..144;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (super::half_at(block, D), super::half_at(block, DMIN));
    let scales = super::part(block, SCALES);
    let qs = &block[QS];
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = k4_scale_min(g, scales);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let (first, shift) = (g / 2 * 32, g % 2 * 4);
        for (out, &q) in out.iter_mut().zip(&qs[first..first + 32]) {
            *out = scale * f32::from((q >> shift) & 15) - min;
        }
    }
}
