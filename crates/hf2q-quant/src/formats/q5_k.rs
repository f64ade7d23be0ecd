//! `q5_k`: 256 values in 8 groups of 32, 5-bit codes above a minimum, `x = d * scale * q - dmin * min`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minimums, see [`k4_scale_min`](crate::layout::k4_scale_min) |
//! | 16..48 | fifth bits: bit `g` of byte `l` belongs to value `32 * g + l` |
//! | 48..176 | low four bits: of each 64 values, byte `l` of 32 holds value `l` low, value `l + 32` high |

use std::ops::Range;

use crate::lanes::Simd;
use crate::layout::k4_scale_min;
use crate::search::Ladder;
use crate::super_block::with_minimum::{self, Shape, WithMinimum};
use crate::super_block::{self, Batch, SuperBlock, pack};

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 176;
/// Offset of the scale of scales.
pub const D: usize = 0;
/// Offset of the scale of minimums.
pub const DMIN: usize = 2;
/// Packed scales and minimums.
pub const SCALES: Range<usize> = 4..16;
/// Fifth bits.
pub const QH: Range<usize> = 16..48;
/// Low four bits.
pub const QS: Range<usize> = 48..176;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (super::half_at(block, D), super::half_at(block, DMIN));
    let scales = super::part(block, SCALES);
    let (qs, qh) = (&block[QS], &block[QH]);
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = k4_scale_min(g, scales);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let (first, shift) = (g / 2 * 32, g % 2 * 4);
        for (out, (&q, &h)) in out.iter_mut().zip(qs[first..first + 32].iter().zip(qh)) {
            let q = ((q >> shift) & 15) | (((h >> g) & 1) << 4);
            *out = scale * f32::from(q) - min;
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
        with_minimum::encode::<S, Self, 8, 32, BYTES>(s, batch, blocks);
    }
}

impl WithMinimum<8, BYTES> for Format {
    const SHAPE: Shape = Shape {
        plain: Ladder { top: 31, first: -0.5, step: 0.1, steps: 15, absolute: false, bounded: false },
        weighted: Ladder { top: 31, first: -0.9, step: 0.05, steps: 36, absolute: false, bounded: true },
        steady: true,
        mean_squares: 2.0,
        top: 63,
        caps: [63, 63],
    };
    const D: usize = D;
    const DMIN: usize = DMIN;

    fn put_scales(scales: &[u8; 8], mins: &[u8; 8], block: &mut [u8; BYTES]) {
        block[SCALES].copy_from_slice(&pack::k4_scales(scales, mins));
    }

    fn scale_min(block: &[u8; BYTES], group: usize) -> (u8, u8) {
        k4_scale_min(group, super::part(block, SCALES))
    }

    fn put_codes(codes: &[u8; LEN], block: &mut [u8; BYTES]) {
        pack::put_nibbles(codes, &mut block[QS]);
        pack::put_bit(codes, 4, &mut block[QH]);
    }
}
