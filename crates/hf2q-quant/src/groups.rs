//! Sixteen groups of 32 values in lanes, and what importance makes of their weights.

use crate::lanes::{Floats, LANES, Mask, Simd, side_by_side};
use crate::search::Groups;

/// Values of a group.
pub(crate) const LEN: usize = 32;

/// Sixteen groups side by side.
pub(crate) type Side = Groups<LEN>;

/// Weights of sixteen groups without importance: the squares of the values.
#[inline(always)]
pub(crate) fn squares<S: Simd>(s: S, x: &Side, weights: &mut Side) {
    for (x, weight) in x.iter().zip(weights) {
        let x = Floats::load(s, x);
        (x * x).store(weight);
    }
}

/// Turns importance into weights: times the root of what is typical of the block (`sigma2`) plus the square of
/// the value. `squares` marks lanes that take the squares of the values instead.
#[inline(always)]
pub(crate) fn weigh<S: Simd>(s: S, x: &Side, sigma2: Floats<S>, squares: Mask<S>, weights: &mut Side) {
    for (x, weight) in x.iter().zip(weights) {
        let x = Floats::load(s, x);
        let importance = Floats::load(s, weight);
        squares.select(x * x, importance * (sigma2 + x * x).sqrt()).store(weight);
    }
}

/// Sixteen groups from the given one on, side by side; behind the last comes the first.
#[inline(always)]
pub(crate) fn side<S: Simd>(s: S, x: &[f32], first: usize) -> Side {
    let mut out = [[0.0; LANES]; LEN];
    side_by_side(s, x.as_chunks().0, (first, LANES), &mut out);
    out
}

/// Lanes whose values are all zero.
#[inline(always)]
pub(crate) fn all_zero<S: Simd>(s: S, x: &Side) -> Mask<S> {
    let mut most = Floats::splat(s, 0.0);
    for x in x {
        most = most.max(Floats::load(s, x).abs());
    }
    most.equal(Floats::splat(s, 0.0))
}

/// Sums of the squares, in the order of the values.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, x: &Side) -> Floats<S> {
    let mut sum = Floats::splat(s, 0.0);
    for x in x {
        let x = Floats::load(s, x);
        sum = sum + x * x;
    }
    sum
}
