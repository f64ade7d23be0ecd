//! `iq3_xxs`: 256 values in 8 groups of 32, each eight words of four values, `x = d * (scale + 1/2) / 2 * word`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | codes |
//! | 66..98 | for each group 4 times 7 signs and a scale of 4 bits above them |

use std::ops::Range;

use crate::grids;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 98;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Codes.
pub const QS: Range<usize> = 2..66;
/// Signs and scales.
pub const SIGNS: Range<usize> = 66..98;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let groups = block[QS].as_chunks::<8>().0.iter().zip(block[SIGNS].as_chunks::<4>().0);
    for ((codes, &packed), out) in groups.zip(out.as_chunks_mut::<32>().0) {
        let packed = u32::from_le_bytes(packed);
        let scale = d * (0.5 + (packed >> 28) as f32) * 0.5;
        for (l, (&code, out)) in codes.iter().zip(out.as_chunks_mut::<4>().0).enumerate() {
            let signs = grids::even_signs(packed >> (7 * (l / 2))) >> (4 * (l % 2));
            grids::decode(&grids::IQ3_XXS[usize::from(code)], scale, signs, out);
        }
    }
}
