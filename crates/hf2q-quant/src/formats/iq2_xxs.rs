//! `iq2_xxs`: 256 values in 8 groups of 32, each four words of eight values, `x = d * (scale + 1/2) / 4 * word`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | groups of 8 bytes: 4 codes; then a word of 4 times 7 signs and a scale above |

use std::ops::Range;

use crate::grids;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 66;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Codes, signs and scales.
pub const QS: Range<usize> = 2..66;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    for (group, out) in block[QS].as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let packed = u32::from_le_bytes(*super::part(group, 4..8));
        let scale = d * (0.5 + (packed >> 28) as f32) * 0.25;
        for (l, (&code, out)) in group[..4].iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
            let signs = grids::even_signs(packed >> (7 * l));
            grids::decode(&grids::IQ2_XXS[usize::from(code)], scale, signs, out);
        }
    }
}
