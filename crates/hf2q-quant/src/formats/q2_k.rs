//! `q2_k`: 256 values in 16 groups of 16, 2-bit codes above a minimum, `x = d * scale * q - dmin * min`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..16 | byte `g`: scale of group `g` low, its minimum high |
//! | 16..80 | codes: of each half of 128 values, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |

use std::ops::Range;

use crate::lanes::Simd;
use crate::search::Ladder;
use crate::super_block::with_minimum::{self, Shape, WithMinimum};
use crate::super_block::{self, Batch, SuperBlock, pack};

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 84;
/// Scales and minimums.
pub const SCALES: Range<usize> = 0..16;
/// Codes.
pub const QS: Range<usize> = 16..80;
/// Offset of the scale of scales.
pub const D: usize = 80;
/// Offset of the scale of minimums.
pub const DMIN: usize = 82;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (super::half_at(block, D), super::half_at(block, DMIN));
    let (qs, scales) = (&block[QS], &block[SCALES]);
    for (g, (out, &packed)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let (scale, min) = (d * f32::from(packed & 15), dmin * f32::from(packed >> 4));
        let (first, shift) = (g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        for (out, &q) in out.iter_mut().zip(&qs[first..first + 16]) {
            *out = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}

/// Encodes whole blocks of finite values. A block whose scale is beyond half precision gets one that is not finite.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    super_block::encode::<Format, BYTES>(x, None, out);
}

/// The same for rows of values with the importance of their columns.
pub(crate) fn quantize_weighted(x: &[f32], weights: &[f32], out: &mut [u8]) {
    super_block::encode::<Format, BYTES>(x, Some(weights), out);
}

/// The encoder.
pub(crate) struct Format;

impl SuperBlock<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(s: S, batch: &Batch<'_>, blocks: &mut [[u8; BYTES]]) {
        with_minimum::encode::<S, Self, 16, 16, BYTES>(s, batch, blocks);
    }
}

impl WithMinimum<16, BYTES> for Format {
    const SHAPE: Shape = Shape {
        plain: Ladder { top: 3, first: -0.5, step: 0.1, steps: 15, absolute: true, bounded: false },
        weighted: Ladder { top: 3, first: -0.9, step: 0.05, steps: 36, absolute: false, bounded: true },
        steady: false,
        mean_squares: 1.0,
        top: 15,
        caps: [255, 255],
    };
    const D: usize = D;
    const DMIN: usize = DMIN;

    fn put_scales(scales: &[u8; 16], mins: &[u8; 16], block: &mut [u8; BYTES]) {
        for ((packed, scale), min) in block[SCALES].iter_mut().zip(scales).zip(mins) {
            *packed = scale | (min << 4);
        }
    }

    fn scale_min(block: &[u8; BYTES], group: usize) -> (u8, u8) {
        let packed = block[SCALES][group];
        (packed & 15, packed >> 4)
    }

    fn put_codes(codes: &[u8; LEN], block: &mut [u8; BYTES]) {
        pack::put_pairs(codes, &mut block[QS]);
    }
}
