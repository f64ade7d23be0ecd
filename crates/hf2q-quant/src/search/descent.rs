//! A signed scale by descent: each code in turn moves to where the fit is best.

use crate::lanes::{Floats, Ints, LANES, Mask, Simd};

use super::symmetric::{extreme, signed_code};
use super::{EMPTY, Groups};

/// Codes are `-TOP .. TOP`.
const TOP: u8 = 4;

/// Rounds over all codes, if they keep moving.
const ROUNDS: usize = 5;

/// What decides the fit of a group.
#[derive(Clone, Copy)]
struct Fit<S: Simd> {
    /// `Σ w · x · l`
    xl: Floats<S>,
    /// `Σ w · l²`
    l2: Floats<S>,
    empty: Mask<S>,
    /// Where a code has moved in this round.
    moved: Mask<S>,
}

/// Fits groups of finite values, weighted by the squares of the values. Gives the scales and writes the codes,
/// `0 .. 8`, all zero in groups of nothing but zeros. Takes `N` sets of groups at a time, because each move waits
/// for a division that the previous move decides.
#[inline(always)]
pub(crate) fn descend<S: Simd, const LEN: usize, const N: usize>(
    s: S,
    x: &[Groups<LEN>; N],
    codes: &mut [Groups<LEN>; N],
) -> [Floats<S>; N] {
    let zero = Floats::splat(s, 0.0);
    let none = zero.less(zero);
    let mut fits = [Fit { xl: zero, l2: zero, empty: none, moved: none }; N];
    for ((fit, x), codes) in fits.iter_mut().zip(x).zip(codes.iter_mut()) {
        *fit = start(s, x, codes);
    }
    for _ in 0..ROUNDS {
        for fit in &mut fits {
            fit.moved = none;
        }
        for j in 0..LEN {
            for ((fit, x), codes) in fits.iter_mut().zip(x).zip(codes.iter_mut()) {
                fit.improve(s, &x[j], &mut codes[j]);
            }
        }
        let mut moved = none;
        for fit in &fits {
            moved = moved | fit.moved;
        }
        if !moved.any() {
            break;
        }
    }
    let mut scales = [zero; N];
    for ((scale, fit), codes) in scales.iter_mut().zip(&fits).zip(codes) {
        *scale = (fit.l2.more(zero) & !fit.empty).select(fit.xl / fit.l2, zero);
        for code in codes {
            let positive = Floats::load(s, code) + Floats::splat(s, TOP.into());
            fit.empty.select(zero, positive).store(code);
        }
    }
    scales
}

/// The codes that the largest magnitude asks for.
#[inline(always)]
fn start<S: Simd, const LEN: usize>(s: S, x: &Groups<LEN>, codes: &mut Groups<LEN>) -> Fit<S> {
    let zero = Floats::splat(s, 0.0);
    let (most, extreme) = extreme(s, x);
    let empty = most.less(Floats::splat(s, EMPTY));
    let scale = Floats::splat(s, -f32::from(TOP)) / empty.select(Floats::splat(s, 1.0), extreme);
    let mut fit = Fit { xl: zero, l2: zero, empty, moved: zero.less(zero) };
    for (x, code) in x.iter().zip(codes) {
        let x = Floats::load(s, x);
        let l = signed_code(s, scale * x, TOP);
        let w = x * x;
        fit.xl = fit.xl + w * x * l;
        fit.l2 = fit.l2 + w * l * l;
        l.store(code);
    }
    fit
}

impl<S: Simd> Fit<S> {
    /// Moves one code of each group to the best one under the scale that the others make, where that helps.
    #[inline(always)]
    fn improve(&mut self, s: S, x: &[f32; LANES], code: &mut [f32; LANES]) {
        let zero = Floats::splat(s, 0.0);
        let (x, old) = (Floats::load(s, x), Floats::load(s, code));
        let w = x * x;
        let wx = w * x;
        let (others_xl, others_l2) = (self.xl - wx * old, self.l2 - w * old * old);
        let wanted = (x * others_l2 / others_xl).nearest_int();
        let (low, high) = (Ints::splat(s, -i32::from(TOP)), Ints::splat(s, i32::from(TOP) - 1));
        let new = wanted.min(high).max(low).to_floats();
        let (xl, l2) = (others_xl + wx * new, others_l2 + w * new * new);
        let better = (xl * xl * self.l2).more(self.xl * self.xl * l2);
        let moves = others_xl.more(zero) & !new.equal(old) & l2.more(zero) & better;
        self.xl = moves.select(xl, self.xl);
        self.l2 = moves.select(l2, self.l2);
        self.moved = self.moved | moves;
        moves.select(new, old).store(code);
    }
}
