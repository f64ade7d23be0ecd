//! `q6_k`: 256 values in 16 groups of 16, 6-bit codes around 32, `x = d * scale * (q - 32)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..128 | low four bits: of each half of 128 values, byte `l` of 64 holds value `l` low, value `l + 64` high |
//! | 128..192 | upper bits: of each half, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 192..208 | scales, i8 |
//! | 208..210 | `d`, f16 |

use std::ops::Range;

use crate::half::f32_to_f16;
use crate::lanes::Simd;
use crate::search::EMPTY;
use crate::super_block::{self, Batch, Grid, SuperBlock, pack, signed};

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 210;
/// Low four bits.
pub const QL: Range<usize> = 0..128;
/// Upper bits.
pub const QH: Range<usize> = 128..192;
/// Scales.
pub const SCALES: Range<usize> = 192..208;
/// Offset of the scale of scales.
pub const D: usize = 208;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let (ql, qh, scales) = (&block[QL], &block[QH], &block[SCALES]);
    for (g, (out, &scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let scale = d * f32::from(scale as i8);
        let (half, within) = (g / 8, g % 8);
        let (low, low_shift) = (half * 64 + within % 4 * 16, within / 4 * 4);
        let (high, high_shift) = (half * 32 + within % 2 * 16, within / 2 * 2);
        let codes = ql[low..low + 16].iter().zip(&qh[high..high + 16]);
        for (out, (&l, &h)) in out.iter_mut().zip(codes) {
            let q = ((l >> low_shift) & 15) | (((h >> high_shift) & 3) << 4);
            *out = scale * f32::from(q as i8 - 32);
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

/// Codes are `-TOP .. TOP`.
const TOP: u8 = 32;

impl SuperBlock<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(s: S, batch: &Batch<'_>, blocks: &mut [[u8; BYTES]]) {
        let (fits, scales) = signed::fit(s, batch.x, batch.importance, TOP);
        let scales = signed::quantize_scales(s, &scales, (128, 127), EMPTY);
        let (unit, empty) = (scales.unit.to_array(), scales.empty.bits());
        let mut grid = Grid::new();
        for (lane, block) in blocks.iter_mut().enumerate() {
            let d = f32_to_f16(unit[lane]);
            let mut codes = [0; 16];
            for (code, all) in codes.iter_mut().zip(&scales.codes) {
                *code = all[lane] as i8;
            }
            signed::set_scales(&mut grid, lane, d, &codes);
            for (byte, code) in block[SCALES].iter_mut().zip(codes) {
                *byte = code as u8;
            }
            block[D..D + 2].copy_from_slice(&d.to_le_bytes());
        }
        signed::keep(s, batch, &fits, &mut grid);
        for (lane, block) in blocks.iter_mut().enumerate() {
            if empty & (1 << lane) != 0 {
                block.fill(0);
                continue;
            }
            let codes = grid.codes(s, batch, lane, (-i32::from(TOP), i32::from(TOP) - 1));
            put_codes(&codes, block);
        }
    }
}

fn put_codes(codes: &[u8; LEN], block: &mut [u8; BYTES]) {
    for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
        let ql = &mut block[QL][half * 64..][..64];
        for (l, out) in ql.iter_mut().enumerate() {
            *out = (codes[l] & 15) | (codes[l + 64] << 4);
        }
    }
    pack::put_pairs(&codes.map(|code| code >> 4), &mut block[QH]);
}
