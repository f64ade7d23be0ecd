//! What `q3_k` and `q6_k` share: groups have a signed scale, a small integer times one number of the block.

use crate::half::f16_to_f32;
use crate::lanes::{Floats, Ints, LANES, Mask, Simd};
use crate::search::{Groups, Symmetric, extreme, symmetric};

use super::batch::{mean_squares, weigh as weigh_group};
use super::{Batch, Grid, LEN};

/// Groups of a block.
pub(crate) const GROUPS: usize = 16;
/// Values of a group.
pub(crate) const SIZE: usize = LEN / GROUPS;

/// The scales of the groups of sixteen blocks as integers.
pub(crate) struct Scales<S: Simd> {
    /// What a step of the integer is worth. NaN if the scale of a group is not finite.
    pub(crate) unit: Floats<S>,
    /// The integers' low bytes.
    pub(crate) codes: [[u8; LANES]; GROUPS],
    /// Blocks of which no scale is larger than the bound.
    pub(crate) empty: Mask<S>,
}

/// The weights of values with importance, and their sums over groups.
#[inline(always)]
pub(crate) fn weigh<S: Simd>(
    s: S,
    x: &Groups<LEN>,
    importance: &Groups<LEN>,
) -> (Groups<LEN>, Groups<GROUPS>) {
    let squares = mean_squares(s, x, 2.0);
    let (mut weights, mut totals) = ([[0.0; LANES]; LEN], [[0.0; LANES]; GROUPS]);
    let importance = importance.as_chunks::<SIZE>().0.iter();
    let outs = weights.as_chunks_mut::<SIZE>().0.iter_mut().zip(&mut totals);
    for ((x, importance), (weights, total)) in x.as_chunks::<SIZE>().0.iter().zip(importance).zip(outs) {
        weigh_group(s, x, (importance, squares), weights).store(total);
    }
    (weights, totals)
}

/// Fits the scale of each group alone. `weights` gives each value's, or is `None` for its square.
#[inline(always)]
pub(crate) fn fit<S: Simd>(
    s: S,
    x: &Groups<LEN>,
    weights: Option<&Groups<LEN>>,
    top: u8,
) -> ([Symmetric<S>; GROUPS], Groups<GROUPS>) {
    let mut fits = [Symmetric::none(s, top); GROUPS];
    let mut scales = [[0.0; LANES]; GROUPS];
    for (group, (x, scale)) in x.as_chunks::<SIZE>().0.iter().zip(&mut scales).enumerate() {
        let weights = weights.map(|weights| &weights.as_chunks::<SIZE>().0[group]);
        fits[group] = symmetric(s, x, weights, top);
        fits[group].scale.store(scale);
    }
    (fits, scales)
}

/// Scales as integers `-top ..= high`, so that the one of the largest magnitude is `-top`.
#[inline(always)]
pub(crate) fn quantize_scales<S: Simd>(
    s: S,
    scales: &Groups<GROUPS>,
    (top, high): (i32, i32),
    empty_below: f32,
) -> Scales<S> {
    let (most, largest) = extreme(s, scales);
    let inverse = Floats::splat(s, -top as f32) / largest;
    let finite = all_finite(s, scales);
    let mut codes = [[0; LANES]; GROUPS];
    for (scale, code) in scales.iter().zip(&mut codes) {
        let scale = Floats::load(s, scale);
        (inverse * scale).nearest_int().min(Ints::splat(s, high)).store_bytes(code);
    }
    let unit = Floats::splat(s, 1.0) / inverse;
    let unit = finite.select(unit, Floats::splat(s, f32::NAN));
    Scales { unit, codes, empty: finite & most.less(Floats::splat(s, empty_below)) }
}

/// Blocks whose scales are all finite.
#[inline(always)]
pub(crate) fn all_finite<S: Simd>(s: S, scales: &Groups<GROUPS>) -> Mask<S> {
    let infinity = Floats::splat(s, f32::INFINITY);
    let mut finite = Floats::splat(s, 0.0).less(infinity);
    for scale in scales {
        finite = finite & Floats::load(s, scale).abs().less(infinity);
    }
    finite
}

/// Sets the scales of a block of the grid from its rounded unit and integers.
pub(crate) fn set_scales(grid: &mut Grid<GROUPS>, lane: usize, d: u16, codes: &[i8; GROUPS]) {
    for (scale, &code) in grid.scale.iter_mut().zip(codes) {
        scale[lane] = f16_to_f32(d) * f32::from(code);
    }
}

/// Keeps the codes of the search where the scale became zero.
#[inline(always)]
pub(crate) fn keep<S: Simd>(s: S, batch: &Batch<'_>, fits: &[Symmetric<S>; GROUPS], grid: &mut Grid<GROUPS>) {
    for (group, fit) in fits.iter().enumerate() {
        if grid.keeps(group) {
            for j in group * SIZE..(group + 1) * SIZE {
                fit.codes(s, Floats::load(s, &batch.x[j])).store_bytes(&mut grid.kept[j]);
            }
        }
    }
}
