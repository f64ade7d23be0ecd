//! `iq4_xs`: 256 values in 8 groups of 32, 4-bit indices into uneven levels, `x = d * scale * level[q]`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | upper 2 bits of the scales |
//! | 4..8 | low 4 bits of the scales, see [`iq4xs_scales`](crate::layout::iq4xs_scales) |
//! | 8..136 | codes: of each group, byte `j` of 16 holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::layout::KVALUES_IQ4NL;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 136;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Upper bits of the scales, a little-endian `u16`.
pub const SCALES_H: Range<usize> = 2..4;
/// Low bits of the scales.
pub const SCALES_L: Range<usize> = 4..8;
/// Codes.
pub const QS: Range<usize> = 8..136;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let high = u16::from_le_bytes(*super::part(block, SCALES_H));
    let scales = crate::layout::iq4xs_scales(high, super::part(block, SCALES_L));
    let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(block[QS].as_chunks::<16>().0);
    for ((out, qs), scale) in groups.zip(scales) {
        let scale = d * f32::from(scale);
        let (low, high) = out.split_at_mut(16);
        for ((&q, low), high) in qs.iter().zip(low).zip(high) {
            *low = scale * f32::from(KVALUES_IQ4NL[usize::from(q & 15)]);
            *high = scale * f32::from(KVALUES_IQ4NL[usize::from(q >> 4)]);
        }
    }
}
