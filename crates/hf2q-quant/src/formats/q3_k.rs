//! `q3_k`: 256 values in 16 groups of 16, 3-bit codes around 4, `x = d * scale * (q - 4)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..32 | third bits: bit `j` of byte `l` belongs to value `32 * j + l` |
//! | 32..96 | low bits: of each half of 128 values, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96` from the low bits up |
//! | 96..108 | scales, see [`q3k_scales`](crate::layout::q3k_scales) |
//! | 108..110 | `d`, f16 |

use std::ops::Range;

use crate::half::f32_to_f16;
use crate::lanes::{Floats, LANES, Simd};
use crate::layout::q3k_scales;
use crate::search::{Groups, descend, symmetric};
use crate::super_block::signed::{self, GROUPS, SIZE};
use crate::super_block::{self, Batch, Grid, SuperBlock, pack};

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// Third bits.
pub const HMASK: Range<usize> = 0..32;
/// Low bits.
pub const QS: Range<usize> = 32..96;
/// Packed scales.
pub const SCALES: Range<usize> = 96..108;
/// Offset of the scale of scales.
pub const D: usize = 108;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let scales = crate::layout::q3k_scales(super::part(block, SCALES));
    let (qs, hmask) = (&block[QS], &block[HMASK]);
    for (g, (out, scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
        let scale = d * f32::from(scale);
        let (low, shift) = (g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        let (high, bit) = (g % 2 * 16, g / 2);
        let codes = qs[low..low + 16].iter().zip(&hmask[high..high + 16]);
        for (out, (&q, &h)) in out.iter_mut().zip(codes) {
            let q = ((q >> shift) & 3) | (((h >> bit) & 1) << 2);
            *out = scale * f32::from(q as i8 - 4);
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

/// Codes are `-TOP .. TOP`, scales of groups `-SCALE_TOP .. SCALE_TOP`.
const TOP: u8 = 4;
const SCALE_TOP: u8 = 32;

impl SuperBlock<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(s: S, batch: &Batch<'_>, blocks: &mut [[u8; BYTES]]) {
        let mut grid = Grid::new();
        match batch.importance {
            Some(importance) => encode_weighted(s, (batch, importance), &mut grid, blocks),
            None => encode_plain(s, batch, &mut grid, blocks),
        }
        for (lane, block) in blocks.iter_mut().enumerate() {
            let codes = grid.codes(s, batch, lane, (-i32::from(TOP), i32::from(TOP) - 1));
            pack::put_pairs(&codes, &mut block[QS]);
            pack::put_bit(&codes, 2, &mut block[HMASK]);
        }
    }
}

#[inline(always)]
fn encode_plain<S: Simd>(s: S, batch: &Batch<'_>, grid: &mut Grid<GROUPS>, blocks: &mut [[u8; BYTES]]) {
    /// Groups whose searches wait for each other.
    const TOGETHER: usize = 4;
    let mut scales = [[0.0; LANES]; GROUPS];
    let mut codes = [[[0.0; LANES]; SIZE]; GROUPS];
    let groups = batch.x.as_chunks::<SIZE>().0.as_chunks::<TOGETHER>().0.iter();
    let found = scales.as_chunks_mut::<TOGETHER>().0.iter_mut().zip(codes.as_chunks_mut::<TOGETHER>().0);
    for (x, (scales, codes)) in groups.zip(found) {
        for (scale, found) in scales.iter_mut().zip(descend(s, x, codes)) {
            found.store(scale);
        }
    }
    let smallest = f32::from_bits(1);
    let range = (SCALE_TOP.into(), i32::from(SCALE_TOP) - 1);
    let quantized = signed::quantize_scales(s, &scales, range, smallest);
    let (unit, empty) = (quantized.unit.to_array(), quantized.empty.bits());
    for (lane, block) in blocks.iter_mut().enumerate() {
        let mut positive = [0; GROUPS];
        let mut d = 0;
        if empty & (1 << lane) == 0 {
            d = f32_to_f16(unit[lane]);
            for (positive, codes) in positive.iter_mut().zip(&quantized.codes) {
                *positive = (codes[lane] as i8).clamp(-32, 31).wrapping_add(32) as u8;
            }
        }
        put_scales(grid, (lane, block), d, &positive);
    }
    for (kept, code) in grid.kept.iter_mut().zip(codes.as_flattened()) {
        Floats::load(s, code).nearest_int().store_bytes(kept);
    }
}

#[inline(always)]
fn encode_weighted<S: Simd>(
    s: S,
    (batch, importance): (&Batch<'_>, &Groups<LEN>),
    grid: &mut Grid<GROUPS>,
    blocks: &mut [[u8; BYTES]],
) {
    let (weights, totals) = signed::weigh(s, batch.x, importance);
    let (fits, scales) = signed::fit(s, batch.x, Some(&weights), TOP);
    let quantized = symmetric(s, &scales, Some(&totals), SCALE_TOP);
    let unit = signed::all_finite(s, &scales).select(quantized.scale, Floats::splat(s, f32::NAN)).to_array();
    let mut codes = [[0; LANES]; GROUPS];
    for (scale, codes) in scales.iter().zip(&mut codes) {
        quantized.codes(s, Floats::load(s, scale)).store_bytes(codes);
    }
    for (lane, block) in blocks.iter_mut().enumerate() {
        let mut positive = [0; GROUPS];
        for (positive, codes) in positive.iter_mut().zip(&codes) {
            *positive = codes[lane];
        }
        put_scales(grid, (lane, block), f32_to_f16(unit[lane]), &positive);
    }
    signed::keep(s, batch, &fits, grid);
}

/// Writes the scales of a block, given plus 32.
fn put_scales(
    grid: &mut Grid<GROUPS>,
    (lane, block): (usize, &mut [u8; BYTES]),
    d: u16,
    positive: &[u8; GROUPS],
) {
    block[SCALES].copy_from_slice(&pack::q3_scales(positive));
    block[D..D + 2].copy_from_slice(&d.to_le_bytes());
    signed::set_scales(grid, lane, d, &q3k_scales(super::part(block, SCALES)));
}
