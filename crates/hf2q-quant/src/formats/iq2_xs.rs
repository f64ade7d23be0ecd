//! `iq2_xs`: 256 values in 16 groups of 16, each two words of eight values, `x = d * (scale + 1/2) / 4 * word`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | little-endian `u16` for eight values: code in the low 9 bits, 7 signs above |
//! | 66..74 | scales of 4 bits, two in a byte, low first |

use std::ops::Range;

use crate::grids;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 74;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Codes and signs.
pub const QS: Range<usize> = 2..66;
/// Scales.
pub const SCALES: Range<usize> = 66..74;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let words = block[QS].as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<8>().0);
    for (l, (&packed, out)) in words.enumerate() {
        let packed = usize::from(u16::from_le_bytes(packed));
        let scale = super::iq2_scale(d, block[SCALES][l / 4], l / 2 % 2);
        grids::decode(&grids::IQ2_XS[packed & 511], scale, grids::even_signs((packed >> 9) as u32), out);
    }
}
