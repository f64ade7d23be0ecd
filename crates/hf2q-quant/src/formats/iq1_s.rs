//! `iq1_s`: 256 values in 8 groups of 32, each four words of eight values, `x = d * (2 * scale + 1) * (word ± 1/8)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | low 8 bits of the codes |
//! | 34..50 | for each group a little-endian `u16`: upper 3 bits of the 4 codes, scale of 3 bits, the top bit for minus |

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 50;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Low bits of the codes.
pub const QS: Range<usize> = 2..34;
/// Upper bits of the codes, scales and shifts.
pub const QH: Range<usize> = 34..50;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let groups = block[QS].as_chunks::<4>().0.iter().zip(block[QH].as_chunks::<2>().0);
    for ((codes, &packed), out) in groups.zip(out.as_chunks_mut::<32>().0) {
        let packed = u16::from_le_bytes(packed);
        let scale = d * f32::from(2 * (packed >> 12 & 7) + 1);
        for (l, (&low, out)) in codes.iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
            let upper = usize::from(packed >> (3 * l) & 7);
            super::iq1_word(usize::from(low) | upper << 8, scale, packed >> 15 == 1, out);
        }
    }
}
