//! The rotation `r = H (s ⊙ x) / √n`: fixed signs `s`, then a Walsh-Hadamard transform. It is orthonormal, so it
//! changes no dot product, and it spreads an outlier over the whole block: values come out nearly normal.
//!
//! Sums follow the butterflies alone, so they have the same bits however the loops are vectorized.

/// Values of the longest block.
pub const MAX_BLOCK: usize = 256;

/// Columns of a row: butterflies of a shorter distance stay within one.
const ROW: usize = 16;

/// Bit `i mod 32` of word `i / 32` says whether value `i` changes sign: the first 256 bits of the fraction of π.
const SIGNS: [u32; MAX_BLOCK / 32] =
    [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344, 0xa409_3822, 0x299f_31d0, 0x082e_fa98, 0xec4e_6c89];

/// 1 or -1 for every value of a block.
static FACTORS: [f32; MAX_BLOCK] = {
    let mut out = [1.0; MAX_BLOCK];
    let mut i = 0;
    while i < MAX_BLOCK {
        if (SIGNS[i / 32] >> (i % 32)) & 1 == 1 {
            out[i] = -1.0;
        }
        i += 1;
    }
    out
};

/// Rotates a block of 64, 128 or 256 values.
///
/// # Panics
/// If it has another length.
#[inline(always)]
pub fn rotate(x: &mut [f32]) {
    let factor = factor(x.len());
    for (x, sign) in x.iter_mut().zip(&FACTORS) {
        *x *= sign;
    }
    hadamard(x);
    for x in x {
        *x *= factor;
    }
}

/// Multiplies the values of a block with what [`rotate_back`] multiplies them with after its butterflies: value `i` with
/// value `i ^ d` for distances `d` of 1, 2, 4 and so on.
///
/// # Panics
/// If the block has another length than 64, 128 or 256.
pub fn back_factors(x: &mut [f32]) {
    let factor = factor(x.len());
    for (x, sign) in x.iter_mut().zip(&FACTORS) {
        *x *= factor * sign;
    }
}

/// Undoes [`rotate`].
///
/// # Panics
/// If the block has another length than 64, 128 or 256.
#[inline(always)]
pub fn rotate_back(x: &mut [f32]) {
    let factor = factor(x.len());
    hadamard(x);
    for (x, sign) in x.iter_mut().zip(&FACTORS) {
        *x *= factor * sign;
    }
}

/// `1 / √n`.
#[inline(always)]
fn factor(n: usize) -> f32 {
    match n {
        64 => 0.125,
        128 => std::f32::consts::FRAC_1_SQRT_2 / 8.0,
        256 => 0.0625,
        _ => panic!("a block has 64, 128 or 256 values, not {n}"),
    }
}

/// The transform without its factor, in natural order.
#[inline(always)]
fn hadamard(x: &mut [f32]) {
    let (rows, _) = x.as_chunks_mut::<ROW>();
    for row in rows.iter_mut() {
        within::<1>(row);
        within::<2>(row);
        within::<4>(row);
        within::<8>(row);
    }
    let mut distance = 1;
    while distance < rows.len() {
        for pair in rows.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            for (low, high) in low.iter_mut().zip(high) {
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
        }
        distance *= 2;
    }
}

/// Butterflies between columns `DISTANCE` apart.
#[inline(always)]
fn within<const DISTANCE: usize>(row: &mut [f32; ROW]) {
    let (mut other, mut own) = ([0.0; ROW], *row);
    for i in 0..ROW {
        other[i] = row[i ^ DISTANCE];
        if i & DISTANCE != 0 {
            own[i] = -own[i];
        }
    }
    for i in 0..ROW {
        row[i] = other[i] + own[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row `i` of the rotation in double precision: `H[i][j] = (-1)^popcount(i & j)`.
    fn expected(x: &[f32], i: usize) -> f64 {
        let term = |(j, &x): (usize, &f32)| {
            let minus = (i & j).count_ones() + u32::from(FACTORS[j] < 0.0);
            if minus.is_multiple_of(2) { f64::from(x) } else { -f64::from(x) }
        };
        x.iter().enumerate().map(term).sum::<f64>() / (x.len() as f64).sqrt()
    }

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * i) as f32 * 0.37).sin() * if i % 50 == 3 { 40.0 } else { 1.0 }).collect()
    }

    #[test]
    fn it_is_the_transform_and_comes_back() {
        for n in [64, 128, 256] {
            let x = wave(n);
            let mut r = x.clone();
            rotate(&mut r);
            for (i, &r) in r.iter().enumerate() {
                assert!((f64::from(r) - expected(&x, i)).abs() < 2e-5, "{n}: value {i}");
            }
            rotate_back(&mut r);
            for (i, (r, x)) in r.iter().zip(&x).enumerate() {
                assert!((r - x).abs() < 1e-5, "{n}: value {i}: {r} for {x}");
            }
        }
    }

    #[test]
    fn it_is_orthonormal() {
        for n in [64, 128, 256] {
            let rows: Vec<Vec<f32>> = (0..n)
                .map(|i| {
                    let mut unit = vec![0.0; n];
                    unit[i] = 1.0;
                    rotate(&mut unit);
                    unit
                })
                .collect();
            for (i, a) in rows.iter().enumerate() {
                for (j, b) in rows.iter().enumerate() {
                    let dot: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    let want = f64::from(u8::from(i == j));
                    assert!((dot - want).abs() < 1e-6, "{n}: rows {i} and {j}: {dot}");
                }
            }
        }
    }

    #[test]
    fn signs_are_balanced() {
        for n in [64, 128, 256] {
            let minus = FACTORS[..n].iter().filter(|&&f| f < 0.0).count();
            assert!(minus.abs_diff(n / 2) <= n / 8, "{minus} of {n} change sign");
        }
    }
}
