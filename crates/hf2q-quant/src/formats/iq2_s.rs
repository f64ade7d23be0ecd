//! `iq2_s`: 256 values in 16 groups of 16, each two words of eight values, `x = d * (scale + 1/2) / 4 * word`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | low 8 bits of the codes |
//! | 34..66 | signs: bit `j` of byte `l` belongs to value `j` of word `l` |
//! | 66..74 | upper 2 bits of the codes, four in a byte, low first |
//! | 74..82 | scales of 4 bits, two in a byte, low first |

use std::ops::Range;

use crate::grids;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 82;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Low bits of the codes.
pub const QS: Range<usize> = 2..34;
/// Signs.
pub const SIGNS: Range<usize> = 34..66;
/// Upper bits of the codes.
pub const QH: Range<usize> = 66..74;
/// Scales.
pub const SCALES: Range<usize> = 74..82;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let words = block[QS].iter().zip(&block[SIGNS]).zip(out.as_chunks_mut::<8>().0);
    for (l, ((&low, &signs), out)) in words.enumerate() {
        let upper = usize::from(block[QH][l / 4] >> (2 * (l % 4)) & 3);
        let scale = super::iq2_scale(d, block[SCALES][l / 4], l / 2 % 2);
        grids::decode(&grids::IQ2_S[usize::from(low) | upper << 8], scale, signs, out);
    }
}
