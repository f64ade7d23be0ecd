//! Exponential and what is made of it. Coefficients are those of the Cephes library (Moshier 1989).

use super::{ROUNDER, Simd};

/// Below this `exp` is 0 (it would not be a normal number), above [`HIGHEST`] it stays at `exp(HIGHEST)`.
const LOWEST: f32 = -87.3;
const HIGHEST: f32 = 88.0;

/// `ln 2` in two parts; the first has few enough bits for its products with exponents to be exact.
const LN_2: (f32, f32) = (355.0 / 512.0, -2.121_944_4e-4);

/// `c[0] · x^(n-1) + … + c[n-1]`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut y = s.splat(c[0]);
    let mut i = 1;
    while i < N {
        y = s.fma(y, x, s.splat(c[i]));
        i += 1;
    }
    y
}

/// `e^x` within 2 units in the last place; NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let clamped = s.max(s.splat(LOWEST), s.min(s.splat(HIGHEST), x));
    let t = s.fma(clamped, s.splat(std::f32::consts::LOG2_E), s.splat(ROUNDER));
    let n = s.sub(t, s.splat(ROUNDER));
    let r = s.fma(n, s.splat(-LN_2.0), clamped);
    let r = s.fma(n, s.splat(-LN_2.1), r);
    const C: [f32; 6] = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let p = polynomial(s, r, C);
    let y = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    s.if_less((x, s.splat(LOWEST)), s.splat(0.0), s.mul(y, s.pow2(t)))
}

/// Hyperbolic tangent within 3 units in the last place.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let size = s.abs(x);
    let z = s.mul(x, x);
    const C: [f32; 5] = [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];
    let small = s.fma(s.mul(polynomial(s, z, C), z), x, x);
    let e = exp(s, s.add(size, size));
    let large = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    s.if_less((size, s.splat(0.625)), small, s.with_sign(large, x))
}

/// `x/2 · (1 + tanh(u))` with `u = sqrt(2/π)(x + 0.044715 x³)`, which is `x / (1 + e^(-2u))`.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // 2 · sqrt(2/π), and that times 0.044715.
    let inner = s.fma(s.mul(x, x), s.splat(-7.135_481_6e-2), s.splat(-1.595_769));
    s.div(x, s.add(s.splat(1.0), exp(s, s.mul(x, inner))))
}

/// `x / (1 + e^(-x))`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

#[cfg(test)]
mod tests {
    use super::super::{Kernel, LANES, dispatch};
    use super::*;
    use crate::isa::Isa;

    struct All([f32; LANES]);

    impl Kernel for All {
        type Output = [[f32; LANES]; 4];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let x = s.load(&self.0);
            let mut out = [[0.0; LANES]; 4];
            s.store(exp(s, x), &mut out[0]);
            s.store(tanh(s, x), &mut out[1]);
            s.store(gelu_tanh(s, x), &mut out[2]);
            s.store(silu(s, x), &mut out[3]);
            out
        }
    }

    fn check(what: &str, got: f32, want: f64, (tolerance, x): (f64, f32)) {
        let error = (f64::from(got) - want).abs();
        assert!(error <= want.abs() * tolerance + 1e-36, "{what}({x}) = {got}, expected {want}");
    }

    #[test]
    fn functions_are_accurate() {
        for step in 0..20_000 {
            let x: [f32; LANES] = std::array::from_fn(|i| (step * LANES + i) as f32 * 5e-4 - 80.0);
            let got = dispatch(Isa::Portable, All(x));
            for i in 0..LANES {
                let wide = f64::from(x[i]);
                let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
                check("exp", got[0][i], wide.exp(), (2.4e-7, x[i]));
                check("tanh", got[1][i], wide.tanh(), (3.6e-7, x[i]));
                // The rounding of the argument of exp grows with it.
                let relative = 4e-7 + 4e-7 * u.abs();
                check("gelu", got[2][i], wide / (1.0 + (-2.0 * u).exp()), (relative, x[i]));
                check("silu", got[3][i], wide / (1.0 + (-wide).exp()), (6e-7, x[i]));
            }
        }
    }

    #[test]
    fn extremes_are_defined() {
        let mut x = [0.0; LANES];
        x[..6].copy_from_slice(&[f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -200.0, 200.0, -0.0]);
        let [exp, tanh, ..] = dispatch(Isa::Portable, All(x));
        assert!(exp[0].is_nan() && tanh[0].is_nan());
        assert_eq!((exp[1], exp[3], exp[5]), (0.0, 0.0, 1.0));
        assert!(exp[2] > 1e38 && exp[4] > 1e38);
        assert_eq!((tanh[1], tanh[2], tanh[3], tanh[4]), (-1.0, 1.0, -1.0, 1.0));
    }
}
