//! A signed scale: `x ≈ scale · (code - top)` with codes `0 .. 2 · top`.

use crate::lanes::{Floats, Ints, Mask, Routine, Simd};

use super::{EMPTY, Groups};

/// The best fit of each group.
#[derive(Clone, Copy)]
pub(crate) struct Symmetric<S: Simd> {
    /// What a step of the code is worth; not rounded. NaN if a sum that decides it is too large.
    pub(crate) scale: Floats<S>,
    /// Codes are those of `x · code_scale`.
    code_scale: Floats<S>,
    empty: Mask<S>,
    top: u8,
}

/// Fits groups of finite values so that the sum of the squares of errors is small, weighted by `w` or else by the
/// squares of the values.
#[inline(always)]
pub(crate) fn symmetric<S: Simd, const LEN: usize>(
    s: S,
    x: &Groups<LEN>,
    w: Option<&Groups<LEN>>,
    top: u8,
) -> Symmetric<S> {
    s.outline(Search { x, w, top })
}

/// Compiled once.
struct Search<'a, const LEN: usize> {
    x: &'a Groups<LEN>,
    w: Option<&'a Groups<LEN>>,
    top: u8,
}

impl<S: Simd, const LEN: usize> Routine<S> for Search<'_, LEN> {
    type Output = Symmetric<S>;

    #[inline(always)]
    fn call(self, s: S) -> Symmetric<S> {
        let Self { x, w, top } = self;
        let (zero, one) = (Floats::splat(s, 0.0), Floats::splat(s, 1.0));
        let (most, extreme) = extreme(s, x);
        let empty = most.less(Floats::splat(s, EMPTY));
        let extreme = empty.select(one, extreme);
        let (weights, products) = products(s, x, w);
        let mut code_scale = Floats::splat(s, -f32::from(top)) / extreme;
        let (xl, l2) = sums(s, (x, &weights, &products), code_scale, top);
        let sound = l2.less(Floats::splat(s, f32::INFINITY));
        let mut scale = l2.equal(zero).select(zero, xl / l2);
        let mut best = scale * xl;
        for step in -9..=9_i8 {
            if step == 0 {
                continue;
            }
            let wanted = -(f32::from(top) + 0.1 * f32::from(step));
            let try_scale = Floats::splat(s, wanted) / extreme;
            let (xl, l2) = sums(s, (x, &weights, &products), try_scale, top);
            let better = l2.more(zero) & (xl * xl).more(best * l2);
            if better.any() {
                scale = better.select(xl / l2, scale);
                best = better.select(scale * xl, best);
                code_scale = better.select(try_scale, code_scale);
            }
        }
        let scale = sound.select(scale, Floats::splat(s, f32::NAN));
        Symmetric { scale: empty.select(zero, scale), code_scale, empty, top }
    }
}

impl<S: Simd> Symmetric<S> {
    /// The fit of nothing.
    #[inline(always)]
    pub(crate) fn none(s: S, top: u8) -> Self {
        let zero = Floats::splat(s, 0.0);
        Self { scale: zero, code_scale: zero, empty: zero.equal(zero), top }
    }

    /// The codes of values, one of every group; zero in groups of nothing but zeros.
    #[inline(always)]
    pub(crate) fn codes(&self, s: S, x: Floats<S>) -> Ints<S> {
        let code = signed_code(s, x * self.code_scale, self.top) + Floats::splat(s, self.top.into());
        self.empty.select(Floats::splat(s, 0.0), code).nearest_int()
    }
}

/// The largest magnitudes and the first values that have them.
#[inline(always)]
pub(crate) fn extreme<S: Simd, const LEN: usize>(s: S, x: &Groups<LEN>) -> (Floats<S>, Floats<S>) {
    let zero = Floats::splat(s, 0.0);
    let (mut most, mut extreme) = (zero, zero);
    for x in x {
        let x = Floats::load(s, x);
        let larger = x.abs().more(most);
        most = larger.select(x.abs(), most);
        extreme = larger.select(x, extreme);
    }
    (most, extreme)
}

/// The weights, and their products with the values.
#[inline(always)]
fn products<S: Simd, const LEN: usize>(
    s: S,
    x: &Groups<LEN>,
    w: Option<&Groups<LEN>>,
) -> (Groups<LEN>, Groups<LEN>) {
    let mut weights = *w.unwrap_or(x);
    let mut products = *x;
    for ((x, weight), product) in x.iter().zip(&mut weights).zip(&mut products) {
        let x = Floats::load(s, x);
        let mut value = Floats::load(s, weight);
        if w.is_none() {
            value = x * x;
            value.store(weight);
        }
        (value * x).store(product);
    }
    (weights, products)
}

/// The nearest code, `-top .. top`, as a float.
#[inline(always)]
pub(super) fn signed_code<S: Simd>(s: S, v: Floats<S>, top: u8) -> Floats<S> {
    let top = f32::from(top);
    v.max(Floats::splat(s, -top)).min(Floats::splat(s, top - 1.0)).round()
}

/// `Σ w · x · l` and `Σ w · l²` over the signed codes of a scale.
#[inline(always)]
fn sums<S: Simd, const LEN: usize>(
    s: S,
    (x, weights, products): (&Groups<LEN>, &Groups<LEN>, &Groups<LEN>),
    scale: Floats<S>,
    top: u8,
) -> (Floats<S>, Floats<S>) {
    let (mut xl, mut l2) = (Floats::splat(s, 0.0), Floats::splat(s, 0.0));
    for ((x, w), wx) in x.iter().zip(weights).zip(products) {
        let l = signed_code(s, scale * Floats::load(s, x), top);
        xl = xl + Floats::load(s, wx) * l;
        l2 = l2 + Floats::load(s, w) * l * l;
    }
    (xl, l2)
}
