//! `q2_k`, `q4_k`, `q5_k`: groups have a scale and a minimum, which are small integers times two numbers of the
//! block.

use crate::half::{f16_to_f32, f32_to_f16};
use crate::lanes::{Floats, Ints, LANES, Simd};
use crate::search::{Affine, Groups, Ladder, affine, positive};

use super::batch::{mean_squares, weigh};
use super::{Batch, Grid, LEN};

/// How a format searches.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Scales that are tried without importance.
    pub(crate) plain: Ladder,
    /// Scales that are tried with importance.
    pub(crate) weighted: Ladder,
    /// Without importance, values weigh their magnitude, and this adds the group's root mean square.
    pub(crate) steady: bool,
    /// With importance, values weigh it times the root of their square and this many mean squares of the block.
    pub(crate) mean_squares: f32,
    /// The largest scale or minimum of a group.
    pub(crate) top: u8,
    /// What integers of scales and minimums are cut to, where rounding errors made them a negative byte: without
    /// and with importance.
    pub(crate) caps: [u8; 2],
}

/// A format of `GROUPS` groups in `BYTES` bytes.
pub(crate) trait WithMinimum<const GROUPS: usize, const BYTES: usize> {
    /// How it searches.
    const SHAPE: Shape;
    /// Offset of the scale of scales.
    const D: usize;
    /// Offset of the scale of minimums.
    const DMIN: usize;

    /// Writes the scales and minimums of the groups.
    fn put_scales(scales: &[u8; GROUPS], mins: &[u8; GROUPS], block: &mut [u8; BYTES]);
    /// Reads the scale and minimum of a group.
    fn scale_min(block: &[u8; BYTES], group: usize) -> (u8, u8);
    /// Writes the codes.
    fn put_codes(codes: &[u8; LEN], block: &mut [u8; BYTES]);
}

/// What the searches found, for sixteen blocks.
struct Found<S: Simd, const GROUPS: usize> {
    fits: [Affine<S>; GROUPS],
    scales: Quantized<S, GROUPS>,
    mins: Quantized<S, GROUPS>,
}

/// Scales, or minimums, as integers.
struct Quantized<S: Simd, const GROUPS: usize> {
    unit: Floats<S>,
    codes: [[u8; LANES]; GROUPS],
}

/// Encodes a batch in groups of `SIZE` values.
#[inline(always)]
pub(crate) fn encode<S, F, const GROUPS: usize, const SIZE: usize, const BYTES: usize>(
    s: S,
    batch: &Batch<'_>,
    blocks: &mut [[u8; BYTES]],
) where
    S: Simd,
    F: WithMinimum<GROUPS, BYTES>,
{
    let found = search::<S, GROUPS, SIZE>(s, batch, F::SHAPE);
    let (d, dmin) = (found.scales.unit.to_array(), found.mins.unit.to_array());
    let mut grid = Grid::<GROUPS>::new();
    for (lane, block) in blocks.iter_mut().enumerate() {
        let (d, dmin) = (f32_to_f16(d[lane]), f32_to_f16(dmin[lane]));
        block[F::D..F::D + 2].copy_from_slice(&d.to_le_bytes());
        block[F::DMIN..F::DMIN + 2].copy_from_slice(&dmin.to_le_bytes());
        let (mut scales, mut mins) = ([0; GROUPS], [0; GROUPS]);
        for group in 0..GROUPS {
            scales[group] = found.scales.codes[group][lane];
            mins[group] = found.mins.codes[group][lane];
        }
        F::put_scales(&scales, &mins, block);
        for group in 0..GROUPS {
            let (scale, min) = F::scale_min(block, group);
            grid.scale[group][lane] = f16_to_f32(d) * f32::from(scale);
            grid.shift[group][lane] = f16_to_f32(dmin) * f32::from(min);
        }
    }
    let ladder = if batch.importance.is_some() { F::SHAPE.weighted } else { F::SHAPE.plain };
    for (group, fit) in found.fits.iter().enumerate() {
        if grid.keeps(group) {
            for j in group * SIZE..(group + 1) * SIZE {
                fit.codes(s, Floats::load(s, &batch.x[j]), ladder).store_bytes(&mut grid.kept[j]);
            }
        }
    }
    for (lane, block) in blocks.iter_mut().enumerate() {
        F::put_codes(&grid.codes(s, batch, lane, (0, ladder.top.into())), block);
    }
}

/// Fits all groups, then their scales and minimums.
#[inline(always)]
fn search<S: Simd, const GROUPS: usize, const SIZE: usize>(
    s: S,
    batch: &Batch<'_>,
    shape: Shape,
) -> Found<S, GROUPS> {
    let mut scales = [[0.0; LANES]; GROUPS];
    let mut mins = [[0.0; LANES]; GROUPS];
    let mut totals = [[0.0; LANES]; GROUPS];
    let mut fits = [Affine::none(s); GROUPS];
    let squares = match batch.importance {
        Some(_) => mean_squares(s, batch.x, shape.mean_squares),
        None => Floats::splat(s, 0.0),
    };
    for (group, x) in batch.x.as_chunks::<SIZE>().0.iter().enumerate() {
        let mut weights = [[0.0; LANES]; SIZE];
        let ladder = match batch.importance {
            Some(importance) => {
                let importance = &importance.as_chunks::<SIZE>().0[group];
                weigh(s, x, (importance, squares), &mut weights).store(&mut totals[group]);
                shape.weighted
            }
            None => {
                weigh_plain(s, x, shape.steady, &mut weights);
                shape.plain
            }
        };
        fits[group] = affine(s, x, &weights, ladder);
        fits[group].scale.store(&mut scales[group]);
        fits[group].below.store(&mut mins[group]);
    }
    if batch.importance.is_some() {
        let scales = quantize_weighted(s, &scales, &totals, shape);
        return Found { fits, scales, mins: quantize_weighted(s, &mins, &totals, shape) };
    }
    Found { fits, scales: quantize_plain(s, &scales, shape), mins: quantize_plain(s, &mins, shape) }
}

/// The weights of values without importance.
#[inline(always)]
fn weigh_plain<S: Simd, const SIZE: usize>(s: S, x: &Groups<SIZE>, steady: bool, weights: &mut Groups<SIZE>) {
    let mut base = Floats::splat(s, 0.0);
    if steady {
        for x in x {
            let x = Floats::load(s, x);
            base = base + x * x;
        }
        base = (base / Floats::splat(s, SIZE as f32)).sqrt();
    }
    for (x, weight) in x.iter().zip(weights) {
        (base + Floats::load(s, x).abs()).store(weight);
    }
}

/// Scales as integers, the largest as the largest.
#[inline(always)]
fn quantize_plain<S: Simd, const GROUPS: usize>(
    s: S,
    x: &Groups<GROUPS>,
    shape: Shape,
) -> Quantized<S, GROUPS> {
    let zero = Floats::splat(s, 0.0);
    let top = Floats::splat(s, shape.top.into());
    let mut most = zero;
    for x in x {
        most = Floats::load(s, x).max(most);
    }
    let inverse = most.more(zero).select(top / most, zero);
    let mut codes = [[0; LANES]; GROUPS];
    for (x, code) in x.iter().zip(&mut codes) {
        let byte = (inverse * Floats::load(s, x)).nearest_int() & Ints::splat(s, 0xff);
        byte.min(Ints::splat(s, shape.caps[0].into())).store_bytes(code);
    }
    Quantized { unit: most / top, codes }
}

/// Scales as integers with the least error.
#[inline(always)]
fn quantize_weighted<S: Simd, const GROUPS: usize>(
    s: S,
    x: &Groups<GROUPS>,
    totals: &Groups<GROUPS>,
    shape: Shape,
) -> Quantized<S, GROUPS> {
    let mut fit = positive(s, x, totals, shape.top);
    for code in fit.codes.as_flattened_mut() {
        *code = shape.caps[1].min(*code);
    }
    Quantized { unit: fit.scale, codes: fit.codes }
}
