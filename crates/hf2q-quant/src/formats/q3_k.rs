//! `q3_k`: 256 values in 16 groups of 16, 3-bit codes around 4, `x = d * scale * (q - 4)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..32 | third bits: bit `j` of byte `l` belongs to value `32 * j + l` |
//! | 32..96 | low bits: of each half of 128 values, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 96..108 | scales, see [`q3k_scales`](crate::layout::q3k_scales) |
//! | 108..110 | `d`, f16 |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// Third bits.
pub const HMASK: Range<usize> = 0..32;
/// Low bits.
pub const QS: Range<usize> = 32..96;
/// Packed scales.
pub const SCALES: Range<usize> = 96..108;
/// Offset of the scale of scales.
pub const D: usize = 108;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let scales = crate::layout::q3k_scales(super::part(block, SCALES));
    let (qs, hmask) = (&block[QS], &block[HMASK]);
    for (g, (out, scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let scale = d * f32::from(scale);
        let (low, shift) = (g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        let (high, bit) = (g % 2 * 16, g / 2);
        let codes = qs[low..low + 16].iter().zip(&hmask[high..high + 16]);
        for (out, (&q, &h)) in out.iter_mut().zip(codes) {
            let q = ((q >> shift) & 3) | (((h >> bit) & 1) << 2);
            *out = scale * f32::from(q as i8 - 4);
        }
    }
}
