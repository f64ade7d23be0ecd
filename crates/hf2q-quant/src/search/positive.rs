//! A positive scale for values that are not negative: `x ≈ scale · code` with codes `0 ..= top`. Scales and
//! minimums of groups are themselves quantized so.

use crate::lanes::{Floats, Ints, LANES, Mask, Routine, Simd};

use super::{EMPTY, Groups};

/// The best fit of each group.
#[derive(Clone, Copy)]
pub(crate) struct Positive<S: Simd, const LEN: usize> {
    /// What a step of the code is worth; not rounded. NaN if it, or a sum that decides it, is too large.
    pub(crate) scale: Floats<S>,
    /// A byte per value.
    pub(crate) codes: [[u8; LANES]; LEN],
}

/// Rounds over all codes, if they keep moving.
const ROUNDS: usize = 5;

/// Fits groups with weights. A value that rounding made negative gets what a byte makes of its code, as in the
/// reference.
#[inline(always)]
pub(crate) fn positive<S: Simd, const LEN: usize>(
    s: S,
    x: &Groups<LEN>,
    w: &Groups<LEN>,
    top: u8,
) -> Positive<S, LEN> {
    s.outline(Search { x, w, top })
}

/// Compiled once.
struct Search<'a, const LEN: usize> {
    x: &'a Groups<LEN>,
    w: &'a Groups<LEN>,
    top: u8,
}

impl<S: Simd, const LEN: usize> Routine<S> for Search<'_, LEN> {
    type Output = Positive<S, LEN>;

    #[inline(always)]
    fn call(self, s: S) -> Positive<S, LEN> {
        let Self { x, w, top } = self;
        let zero = Floats::splat(s, 0.0);
        let mut most = zero;
        for x in x {
            most = most.max(Floats::load(s, x));
        }
        let empty = most.less(Floats::splat(s, EMPTY));
        let finite = most.less(Floats::splat(s, f32::INFINITY));
        let most = empty.select(Floats::splat(s, 1.0), most);
        let inverse = best_inverse(s, x, w, (most, top));
        let mut codes = [[0.0; LANES]; LEN];
        let (mut xl, mut l2) = (zero, zero);
        for ((x, w), code) in x.iter().zip(w).zip(&mut codes) {
            let (x, w) = (Floats::load(s, x), Floats::load(s, w));
            let l = (inverse * x).nearest_int().min(Ints::splat(s, top.into()));
            as_byte(s, l).store(code);
            let l = l.to_floats();
            xl = xl + w * x * l;
            l2 = l2 + w * l * l;
        }
        let mut fit = Fit { xl, l2, moved: zero.less(zero) };
        for _ in 0..ROUNDS {
            fit.moved = zero.less(zero);
            for ((x, w), code) in x.iter().zip(w).zip(&mut codes) {
                fit.improve(s, (x, w), code, top);
            }
            if !fit.moved.any() {
                break;
            }
        }
        let scale = fit.l2.more(zero).select(fit.xl / fit.l2, zero);
        let finite = finite & fit.l2.less(Floats::splat(s, f32::INFINITY));
        let scale = empty.select(zero, finite.select(scale, Floats::splat(s, f32::NAN)));
        let mut bytes = [[0; LANES]; LEN];
        for (code, bytes) in codes.iter().zip(&mut bytes) {
            empty.select(zero, Floats::load(s, code)).nearest_int().store_bytes(bytes);
        }
        Positive { scale, codes: bytes }
    }
}

/// The codes per unit, of those around what the largest value asks for, with the least error.
#[inline(always)]
fn best_inverse<S: Simd, const LEN: usize>(
    s: S,
    x: &Groups<LEN>,
    w: &Groups<LEN>,
    (most, top): (Floats<S>, u8),
) -> Floats<S> {
    let one = Floats::splat(s, 1.0);
    let mut best = Floats::splat(s, top.into()) / most;
    let mut least = Floats::splat(s, 0.0);
    for (x, w) in x.iter().zip(w) {
        let (x, w) = (Floats::load(s, x), Floats::load(s, w));
        let l = as_byte(s, (best * x).nearest_int());
        let off = x - one / best * l;
        least = least + w * off * off;
    }
    for step in -4..=4_i8 {
        if step == 0 {
            continue;
        }
        let inverse = Floats::splat(s, 0.1 * f32::from(step) + f32::from(top)) / most;
        let scale = one / inverse;
        let mut error = Floats::splat(s, 0.0);
        for (x, w) in x.iter().zip(w) {
            let (x, w) = (Floats::load(s, x), Floats::load(s, w));
            let l = (inverse * x).nearest_int().min(Ints::splat(s, top.into())).to_floats();
            let off = x - scale * l;
            error = error + w * off * off;
        }
        let better = error.less(least);
        least = better.select(error, least);
        best = better.select(inverse, best);
    }
    best
}

/// A small integer as what remains of it in an unsigned byte.
#[inline(always)]
fn as_byte<S: Simd>(s: S, l: Ints<S>) -> Floats<S> {
    (l & Ints::splat(s, 0xff)).to_floats()
}

/// The sums that decide the fit of a group.
#[derive(Clone, Copy)]
struct Fit<S: Simd> {
    /// `Σ w · x · l`
    xl: Floats<S>,
    /// `Σ w · l²`
    l2: Floats<S>,
    /// Where a code has moved in this round.
    moved: Mask<S>,
}

impl<S: Simd> Fit<S> {
    /// Moves one code of each group to the best one under the scale that the others make, where that helps.
    #[inline(always)]
    fn improve(&mut self, s: S, (x, w): (&[f32; LANES], &[f32; LANES]), code: &mut [f32; LANES], top: u8) {
        let zero = Floats::splat(s, 0.0);
        let (x, w, old) = (Floats::load(s, x), Floats::load(s, w), Floats::load(s, code));
        let (others_xl, others_l2) = (self.xl - w * x * old, self.l2 - w * old * old);
        let wanted = (x * others_l2 / others_xl).nearest_int().min(Ints::splat(s, top.into()));
        let new = wanted.to_floats();
        let (xl, l2) = (others_xl + w * x * new, others_l2 + w * new * new);
        let better = (xl * xl * self.l2).more(self.xl * self.xl * l2);
        let moves = others_xl.more(zero) & others_l2.more(zero) & !new.equal(old) & better;
        self.xl = moves.select(xl, self.xl);
        self.l2 = moves.select(l2, self.l2);
        self.moved = self.moved | moves;
        moves.select(as_byte(s, wanted), old).store(code);
    }
}
