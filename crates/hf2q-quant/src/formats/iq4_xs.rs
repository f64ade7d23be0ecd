//! `iq4_xs`: 256 values in 8 groups of 32, 4-bit indices into uneven levels, `x = d * scale * level[q]`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | upper 2 bits of the scales |
//! | 4..8 | low 4 bits of the scales, see [`iq4xs_scales`](crate::layout::iq4xs_scales) |
//! | 8..136 | codes: of each group, byte `j` of 16 holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::groups::{self, Side};
use crate::lanes::{Floats, Ints, Isa, Kernel, LANES, Simd};
use crate::layout::KVALUES_IQ4NL;
use crate::levels::{self, Search};

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

/// A magnitude that no scale brings within half precision.
pub(crate) const LIMIT: f32 = 4.0 * 32.0 * 127.0 * super::F16_OVERFLOW;

/// Groups of a block.
const GROUPS: usize = LEN / groups::LEN;

/// Blocks searched at once.
const BATCH: usize = LANES / GROUPS;

/// Encodes blocks of finite values below the limit.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    encode_on(Isa::detect(), (x, None), out);
}

/// The same for whole rows, with a weight for each column.
pub(crate) fn quantize_weighted(x: &[f32], weights: &[f32], out: &mut [u8]) {
    encode_on(Isa::detect(), (x, Some(weights)), out);
}

/// Encodes with a given instruction set.
pub(super) fn encode_on(isa: Isa, (x, weights): (&[f32], Option<&[f32]>), out: &mut [u8]) {
    isa.run(Encode { x, weights, out });
}

struct Encode<'a> {
    x: &'a [f32],
    weights: Option<&'a [f32]>,
    out: &'a mut [u8],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut search = Search::new();
        let batches = self.x.chunks(BATCH * LEN).zip(self.out.chunks_mut(BATCH * BYTES));
        for (number, (values, out)) in batches.enumerate() {
            let x = groups::side(s, values, 0);
            let mut weights = [[0.0; LANES]; groups::LEN];
            match self.weights {
                None => groups::squares(s, &x, &mut weights),
                Some(importance) => {
                    weights = groups::side(s, importance, number * LANES);
                    weigh(s, values, &x, &mut weights);
                }
            }
            let scales = search.run(s, &x, &weights);
            encode_batch(s, &x, scales, out);
        }
    }
}

/// Turns importance into weights.
#[inline(always)]
fn weigh<S: Simd>(s: S, values: &[f32], x: &Side, weights: &mut Side) {
    let zero = groups::all_zero(s, weights).bits();
    let mut sigma2 = [0.0; LANES];
    let mut squares = [0; LANES];
    for (block, values) in values.as_chunks::<LEN>().0.iter().enumerate() {
        let lanes = block * GROUPS..(block + 1) * GROUPS;
        let mut sum = 0.0;
        for v in values {
            sum += v * v;
        }
        sigma2[lanes.clone()].fill(sum * (2.0 / LEN as f32));
        let is_zero = zero >> lanes.start & 0xff == 0xff;
        squares[lanes].fill(i32::from(is_zero));
    }
    let squares = Ints::load(s, &squares).equal(Ints::splat(s, 1));
    groups::weigh(s, x, Floats::load(s, &sigma2), squares, weights);
}

/// Writes blocks under the scales of their groups, which become multiples of a scale of the block.
#[inline(always)]
fn encode_batch<S: Simd>(s: S, x: &Side, scales: Floats<S>, out: &mut [u8]) {
    let mut unit = [0.0; LANES];
    for (unit, scales) in unit.as_chunks_mut::<GROUPS>().0.iter_mut().zip(scales.to_array().as_chunks().0) {
        unit.fill(unit_of(scales));
    }
    let (zero, one, unit) = (Floats::splat(s, 0.0), Floats::splat(s, 1.0), Floats::load(s, &unit));
    let inverse = unit.equal(zero).select(zero, one / unit);
    let steps = (inverse * scales).nearest_int().min(Ints::splat(s, 31)).max(Ints::splat(s, -32));
    let scales = unit * steps.to_floats();
    let inverse = scales.equal(zero).select(zero, one / scales);
    let mut packed = [[0; LANES]; groups::LEN / 2];
    levels::pack(s, x, inverse, &mut packed);
    let (unit, steps) = (unit.to_array(), steps.to_array());
    for (number, block) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
        let first = number * GROUPS;
        super::put_half(block, D, unit[first]);
        put_scales(&steps[first..], block);
        for (group, codes) in block[QS].as_chunks_mut::<16>().0.iter_mut().enumerate() {
            for (code, packed) in codes.iter_mut().zip(&packed) {
                *code = packed[first + group];
            }
        }
    }
}

/// The scale of the scales: the first of the largest magnitude becomes -32 steps. NaN if a search failed.
fn unit_of(scales: &[f32; GROUPS]) -> f32 {
    let (mut most, mut extreme) = (0.0, 0.0);
    for &scale in scales {
        if scale.is_nan() {
            return f32::NAN;
        }
        if scale.abs() > most {
            (most, extreme) = (scale.abs(), scale);
        }
    }
    -extreme / 32.0
}

/// Packs scales, -32..32.
fn put_scales(steps: &[i32], block: &mut [u8; BYTES]) {
    let (mut low, mut high) = (0_u32, 0_u16);
    for (group, &step) in steps[..GROUPS].iter().enumerate() {
        let step = (step + 32) as u16;
        low |= u32::from(step & 15) << (4 * group);
        high |= (step >> 4) << (2 * group);
    }
    block[SCALES_H].copy_from_slice(&high.to_le_bytes());
    block[SCALES_L].copy_from_slice(&low.to_le_bytes());
}
