//! `iq4_nl`: 32 values as 4-bit indices into uneven levels, `x = d * level[q]`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | codes: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::layout::KVALUES_IQ4NL;

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Offset of the scale.
pub const D: usize = 0;
/// Codes.
pub const QS: Range<usize> = 2..18;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let (low, high) = out.split_at_mut(LEN / 2);
    for ((&q, low), high) in block[QS].iter().zip(low).zip(high) {
        *low = d * f32::from(KVALUES_IQ4NL[usize::from(q & 15)]);
        *high = d * f32::from(KVALUES_IQ4NL[usize::from(q >> 4)]);
    }
}
