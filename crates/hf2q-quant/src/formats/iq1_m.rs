//! `iq1_m`: 256 values in 16 groups of 16, each two words of eight values, `x = d * (2 * scale + 1) * (word ± 1/8)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..32 | low 8 bits of the codes |
//! | 32..48 | a nibble for each code, low first: upper 3 bits, and the top bit for minus |
//! | 48..56 | four little-endian `u16`, each four scales of 3 bits, and above them a nibble of `d`, f16 |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 56;
/// Low bits of the codes.
pub const QS: Range<usize> = 0..32;
/// Upper bits of the codes and shifts.
pub const QH: Range<usize> = 32..48;
/// Scales and the scale of scales.
pub const SCALES: Range<usize> = 48..56;

/// The scale of scales, half precision.
pub fn d(block: &[u8; BYTES]) -> u16 {
    let mut d = 0;
    for (i, packed) in packed_scales(block).into_iter().enumerate() {
        d |= (packed >> 12) << (4 * i);
    }
    d
}

fn packed_scales(block: &[u8; BYTES]) -> [u16; 4] {
    let bytes: &[u8; 8] = super::part(block, SCALES);
    std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = crate::half::f16_to_f32(d(block));
    let scales = packed_scales(block);
    for (l, (&low, out)) in block[QS].iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
        let nibble = block[QH][l / 2] >> (4 * (l % 2));
        let scale = scales[l / 8] >> (3 * (l / 2 % 4)) & 7;
        let code = usize::from(low) | usize::from(nibble & 7) << 8;
        super::iq1_word(code, d * f32::from(2 * scale + 1), nibble & 8 != 0, out);
    }
}
