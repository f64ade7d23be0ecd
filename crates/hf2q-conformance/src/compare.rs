//! How far results are from expected ones.

/// Normalized mean square error: of everything, and of the worst row against the mean square of everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distance {
    pub(crate) total: f64,
    pub(crate) worst_row: f64,
}

/// Compares rows of `width` values. Both zero: no distance; NaN on either side: an infinite one.
pub(crate) fn distance(found: &[f32], expected: &[f32], width: usize) -> Distance {
    let infinite = Distance { total: f64::INFINITY, worst_row: f64::INFINITY };
    if found.len() != expected.len() || found.iter().chain(expected).any(|x| x.is_nan()) {
        return infinite;
    }
    if found.is_empty() || same_bits(found, expected) {
        return Distance { total: 0.0, worst_row: 0.0 };
    }
    let errors = found
        .chunks(width)
        .zip(expected.chunks(width))
        .map(|(f, e)| f.iter().zip(e).map(|(&f, &e)| (f64::from(f) - f64::from(e)).powi(2)).sum::<f64>());
    let errors: Vec<f64> = errors.collect();
    let power: f64 = expected.iter().map(|&e| f64::from(e).powi(2)).sum();
    let rows = errors.len() as f64;
    let power = power.max(f64::MIN_POSITIVE);
    let total = errors.iter().sum::<f64>() / power;
    let worst = errors.iter().copied().fold(0.0, f64::max) * rows / power;
    if total.is_nan() { infinite } else { Distance { total, worst_row: worst } }
}

/// Sum of squared differences.
pub(crate) fn square_error(found: &[f32], expected: &[f32]) -> f64 {
    found.iter().zip(expected).map(|(&f, &e)| (f64::from(f) - f64::from(e)).powi(2)).sum()
}

/// Relative L2 distance.
pub(crate) fn relative_l2(found: &[f32], expected: &[f32]) -> f64 {
    distance(found, expected, found.len().max(1)).total.sqrt()
}

/// Equal bit by bit.
pub(crate) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// The first difference, for messages.
pub(crate) fn first_difference(a: &[f32], b: &[f32]) -> String {
    if a.len() != b.len() {
        return format!("{} values instead of {}", a.len(), b.len());
    }
    let differs = |&(_, (x, y)): &(usize, (&f32, &f32))| x.to_bits() != y.to_bits();
    match a.iter().zip(b).enumerate().find(differs) {
        Some((i, (x, y))) => format!("value {i} is {x:e} instead of {y:e}"),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_row_stands_out() {
        let expected = vec![1.0; 100];
        let mut found = expected.clone();
        found[55] = 2.0;
        assert_eq!(distance(&found, &expected, 10), Distance { total: 0.01, worst_row: 0.1 });
        found[55] = f32::NAN;
        assert_eq!(distance(&found, &expected, 10).total, f64::INFINITY);
    }
}
