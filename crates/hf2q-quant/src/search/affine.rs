//! Scale and minimum: `x ≈ scale · code + minimum` with codes `0 ..= top` and a minimum that is not positive.

use crate::lanes::{Floats, Ints, LANES, Mask, Routine, Simd};

use super::Groups;

/// The scales that are tried.
#[derive(Clone, Copy)]
pub(crate) struct Ladder {
    /// The largest code.
    pub(crate) top: u8,
    /// Codes spanned by the range of the values at the first try, less `top`.
    pub(crate) first: f32,
    /// Codes by which tries differ.
    pub(crate) step: f32,
    /// Tries after the first.
    pub(crate) steps: u8,
    /// Errors count by magnitude instead of square.
    pub(crate) absolute: bool,
    /// Values beyond the codes get the nearest code, even those far out; else values more than 2²² codes away get
    /// whatever the rounding makes of them.
    pub(crate) bounded: bool,
}

/// The best fit of each group.
#[derive(Clone, Copy)]
pub(crate) struct Affine<S: Simd> {
    /// What a step of the code is worth; not rounded. Infinite if the range of the values is.
    pub(crate) scale: Floats<S>,
    /// The value of code 0, negated.
    pub(crate) below: Floats<S>,
    /// Codes are those of `(x - code_min) · code_scale`.
    code_scale: Floats<S>,
    code_min: Floats<S>,
    /// Where the codes are not those of the plain range.
    refined: Mask<S>,
}

impl<S: Simd> Affine<S> {
    /// The fit of nothing.
    #[inline(always)]
    pub(crate) fn none(s: S) -> Self {
        let zero = Floats::splat(s, 0.0);
        Self { scale: zero, below: zero, code_scale: zero, code_min: zero, refined: zero.less(zero) }
    }

    /// The codes of values, one of every group.
    #[inline(always)]
    pub(crate) fn codes(&self, s: S, x: Floats<S>, ladder: Ladder) -> Ints<S> {
        let v = self.code_scale * (x - self.code_min);
        let (zero, top) = (Floats::splat(s, 0.0), Floats::splat(s, ladder.top.into()));
        let wild = v.nearest_int().min(Ints::splat(s, ladder.top.into())).max(Ints::splat(s, 0));
        if !ladder.bounded {
            return wild;
        }
        self.refined.select_ints(v.max(zero).min(top).nearest_int(), wild)
    }
}

/// Ends of the groups and their weighted sums.
#[derive(Clone, Copy)]
struct Range<S: Simd> {
    min: Floats<S>,
    max: Floats<S>,
    sum_w: Floats<S>,
    sum_x: Floats<S>,
}

/// Weighted sums over the codes of a try.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    l: Floats<S>,
    l2: Floats<S>,
    xl: Floats<S>,
}

/// Fits groups of `LEN` values with weights: `x[j]` holds value `j` of every group.
#[inline(always)]
pub(crate) fn affine<S: Simd, const LEN: usize>(
    s: S,
    x: &Groups<LEN>,
    w: &Groups<LEN>,
    ladder: Ladder,
) -> Affine<S> {
    s.outline(Search { x, w, ladder })
}

/// Compiled once, for all ladders.
struct Search<'a, const LEN: usize> {
    x: &'a Groups<LEN>,
    w: &'a Groups<LEN>,
    ladder: Ladder,
}

impl<S: Simd, const LEN: usize> Routine<S> for Search<'_, LEN> {
    type Output = Affine<S>;

    #[inline(always)]
    fn call(self, s: S) -> Affine<S> {
        let Self { x, w, ladder } = self;
        let (zero, one, top) =
            (Floats::splat(s, 0.0), Floats::splat(s, 1.0), Floats::splat(s, ladder.top.into()));
        let range = range(s, x, w);
        let flat = range.max.equal(range.min);
        let mut codes = [[0.0; LANES]; LEN];
        let mut min = range.min;
        let mut code_scale = top / flat.select(one, range.max - min);
        let mut scale = one / code_scale;
        quantize(s, (x, &mut codes), (code_scale, min), (range, ladder.top, false));
        let mut least = error(s, (x, w), &codes, (scale, min), ladder.absolute);
        let mut code_min = min;
        let mut refined = zero.less(zero);
        for step in 0..=ladder.steps {
            let wanted = ladder.first + ladder.step * f32::from(step) + f32::from(ladder.top);
            let try_scale = Floats::splat(s, wanted) / flat.select(one, range.max - min);
            quantize(s, (x, &mut codes), (try_scale, min), (range, ladder.top, ladder.bounded));
            let sums = sums(s, (x, w), &codes);
            let determinant = range.sum_w * sums.l2 - sums.l * sums.l;
            let mut new_scale = (range.sum_w * sums.xl - range.sum_x * sums.l) / determinant;
            let mut new_min = (sums.l2 * range.sum_x - sums.l * sums.xl) / determinant;
            let above = new_min.more(zero);
            if above.any() {
                new_min = above.select(zero, new_min);
                new_scale = above.select(sums.xl / sums.l2, new_scale);
            }
            let found = error(s, (x, w), &codes, (new_scale, new_min), ladder.absolute);
            let better = determinant.more(zero) & found.less(least);
            least = better.select(found, least);
            scale = better.select(new_scale, scale);
            code_scale = better.select(try_scale, code_scale);
            code_min = better.select(min, code_min);
            min = better.select(new_min, min);
            refined = refined | better;
        }
        Affine { scale: flat.select(zero, scale), below: -min, code_scale, code_min, refined }
    }
}

#[inline(always)]
fn range<S: Simd, const LEN: usize>(s: S, x: &Groups<LEN>, w: &Groups<LEN>) -> Range<S> {
    let (first, first_w) = (Floats::load(s, &x[0]), Floats::load(s, &w[0]));
    let (mut min, mut max, mut sum_w, mut sum_x) = (first, first, first_w, first_w * first);
    for (x, w) in x.iter().zip(w).skip(1) {
        let (x, w) = (Floats::load(s, x), Floats::load(s, w));
        min = x.min(min);
        max = x.max(max);
        sum_w = sum_w + w;
        sum_x = sum_x + w * x;
    }
    let zero = Floats::splat(s, 0.0);
    min = min.more(zero).select(zero, min);
    Range { min, max, sum_w, sum_x }
}

/// The codes of `(x - min) · scale`.
#[inline(always)]
fn quantize<S: Simd, const LEN: usize>(
    s: S,
    (x, codes): (&Groups<LEN>, &mut Groups<LEN>),
    (scale, min): (Floats<S>, Floats<S>),
    (range, top, bounded): (Range<S>, u8, bool),
) {
    let zero = Floats::splat(s, 0.0);
    let limit = Floats::splat(s, 4_194_303.0);
    let (low, high) = ((range.min - min) * scale, (range.max - min) * scale);
    let tame = low.abs().less(limit) & high.abs().less(limit);
    if bounded || !(!tame).any() {
        let top = Floats::splat(s, top.into());
        for (x, code) in x.iter().zip(codes) {
            let v = scale * (Floats::load(s, x) - min);
            v.max(zero).min(top).round().store(code);
        }
    } else {
        let (zero, top) = (Ints::splat(s, 0), Ints::splat(s, top.into()));
        for (x, code) in x.iter().zip(codes) {
            let v = scale * (Floats::load(s, x) - min);
            v.nearest_int().min(top).max(zero).to_floats().store(code);
        }
    }
}

#[inline(always)]
fn sums<S: Simd, const LEN: usize>(
    s: S,
    (x, w): (&Groups<LEN>, &Groups<LEN>),
    codes: &Groups<LEN>,
) -> Sums<S> {
    let zero = Floats::splat(s, 0.0);
    let mut sums = Sums { l: zero, l2: zero, xl: zero };
    for ((x, w), l) in x.iter().zip(w).zip(codes) {
        let (x, w, l) = (Floats::load(s, x), Floats::load(s, w), Floats::load(s, l));
        let wl = w * l;
        sums.l = sums.l + wl;
        sums.l2 = sums.l2 + wl * l;
        sums.xl = sums.xl + wl * x;
    }
    sums
}

/// The weighted error of a fit.
#[inline(always)]
fn error<S: Simd, const LEN: usize>(
    s: S,
    (x, w): (&Groups<LEN>, &Groups<LEN>),
    codes: &Groups<LEN>,
    (scale, min): (Floats<S>, Floats<S>),
    absolute: bool,
) -> Floats<S> {
    let mut sum = Floats::splat(s, 0.0);
    for ((x, w), l) in x.iter().zip(w).zip(codes) {
        let (x, w, l) = (Floats::load(s, x), Floats::load(s, w), Floats::load(s, l));
        let off = scale * l + min - x;
        let off = if absolute { off.abs() } else { off * off };
        sum = sum + w * off;
    }
    sum
}
