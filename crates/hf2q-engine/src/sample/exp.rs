//! The exponential function, for whole vocabularies: the same bits on every machine, which the system's library does not
//! promise, and in a form that compilers turn into vector instructions.

/// Sums that are kept side by side.
const LANES: usize = 8;

/// Below this, results are as good as none beside a term of 1.
const LEAST: f32 = -87.0;

/// `e^x` for `x <= 0`, within 3 units in the last place; what is below -87 counts as that.
///
/// `x = k ln 2 + r` with `|r| <= ln 2 / 2`; `e^r` is its Taylor polynomial of degree 7, whose error is below
/// `0.35^8 / 8! = 6e-9`.
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding and taking away 1.5 * 2^23 rounds to an integer.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with so few bits that its product with k is exact.
    const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = if x > LEAST { x } else { LEAST };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = x - k * LN2[0] - k * LN2[1];
    let p = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let p = 1.0 / 120.0 + r * p;
    let p = 1.0 / 24.0 + r * p;
    let p = 1.0 / 6.0 + r * p;
    let p = 0.5 + r * p;
    let p = 1.0 + r * (1.0 + r * p);
    // k is in the low bits of the rounded sum; as an exponent it is 2^k.
    let scale = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    p * f32::from_bits(scale)
}

/// Sum of `e^((x - max) / divisor)` over those of `values` that are finite, `max` being the largest.
pub(crate) fn sum(values: &[f32], max: f32, divisor: f32) -> f64 {
    let term = |x: f32| {
        let term = exp((x - max) / divisor);
        if x.is_finite() { term } else { 0.0 }
    };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0_f64; LANES];
    for chunk in chunks {
        let terms = chunk.map(term);
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += f64::from(term);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(term(x))).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential_function() {
        for i in 0..870_000 {
            let x = i as f32 * -1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 3.0 * f64::from(f32::EPSILON), "{x}: {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), exp(LEAST));
    }

    #[test]
    fn sums_leave_out_what_is_not_finite() {
        let values = [1.0, f32::NAN, 0.0, f32::NEG_INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0, f32::INFINITY];
        let expected = 6.0 + (-0.5_f64).exp();
        assert!((sum(&values, 1.0, 2.0) - expected).abs() < 1e-6);
    }
}
