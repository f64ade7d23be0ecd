//! `iq3_s`: 256 values in 8 groups of 32, each eight words of four values, `x = d * (2 * scale + 1) * word`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | low 8 bits of the codes |
//! | 66..74 | ninth bits: bit `l` of a byte belongs to word `l` of the group |
//! | 74..106 | signs, bit `j` of a byte belongs to value `j` of eight |
//! | 106..110 | scales of 4 bits, two in a byte, low first |

use std::ops::Range;

use crate::grids;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Low bits of the codes.
pub const QS: Range<usize> = 2..66;
/// Ninth bits of the codes.
pub const QH: Range<usize> = 66..74;
/// Signs.
pub const SIGNS: Range<usize> = 74..106;
/// Scales.
pub const SCALES: Range<usize> = 106..110;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    for (l, (&low, out)) in block[QS].iter().zip(out.as_chunks_mut::<4>().0).enumerate() {
        let ninth = usize::from(block[QH][l / 8] >> (l % 8) & 1);
        let nibble = block[SCALES][l / 16] >> (4 * (l / 8 % 2)) & 15;
        let scale = d * f32::from(1 + 2 * nibble);
        let signs = block[SIGNS][l / 2] >> (4 * (l % 2));
        grids::decode(&grids::IQ3_S[usize::from(low) | ninth << 8], scale, signs, out);
    }
}
