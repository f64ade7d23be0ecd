//! `mxfp4`: 32 values as 4-bit floats (E2M1) under a power of two (OCP Microscaling Formats 1.0).
//!
//! | bytes | part |
//! |---|---|
//! | 0 | exponent of the scale, E8M0 |
//! | 1..17 | codes: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::layout::{KVALUES_MXFP4, e8m0_half};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 17;
/// Offset of the exponent.
pub const E: usize = 0;
/// Codes.
pub const QS: Range<usize> = 1..17;

/// Decodes one block. The code for negative zero gives +0.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = e8m0_half(block[E]);
    let (low, high) = out.split_at_mut(LEN / 2);
    for ((&q, low), high) in block[QS].iter().zip(low).zip(high) {
        *low = f32::from(KVALUES_MXFP4[usize::from(q & 15)]) * d;
        *high = f32::from(KVALUES_MXFP4[usize::from(q >> 4)]) * d;
    }
}
