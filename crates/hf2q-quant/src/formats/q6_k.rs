//! `q6_k`: 256 values in 16 groups of 16, 6-bit codes around 32, `x = d * scale * (q - 32)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..128 | low four bits: of each half of 128 values, byte `l` of 64 holds value `l` low, value `l + 64` high |
//! | 128..192 | upper bits: of each half, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 192..208 | scales, i8 |
//! | 208..210 | `d`, f16 |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 210;
/// Low four bits.
pub const QL: Range<usize> = 0..128;
/// Upper bits.
pub const QH: Range<usize> = 128..192;
/// Scales.
pub const SCALES: Range<usize> = 192..208;
/// Offset of the scale of scales.
pub const D: usize = 208;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let (ql, qh, scales) = (&block[QL], &block[QH], &block[SCALES]);
    for (g, (out, &scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let scale = d * f32::from(scale as i8);
        let (half, within) = (g / 8, g % 8);
        let (low, low_shift) = (half * 64 + within % 4 * 16, within / 4 * 4);
        let (high, high_shift) = (half * 32 + within % 2 * 16, within / 2 * 2);
        let codes = ql[low..low + 16].iter().zip(&qh[high..high + 16]);
        for (out, (&l, &h)) in out.iter_mut().zip(codes) {
            let q = ((l >> low_shift) & 15) | (((h >> high_shift) & 3) << 4);
            *out = scale * f32::from(q as i8 - 32);
        }
    }
}
