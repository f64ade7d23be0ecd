//! Two rows of logits, side by side.

use rayon::prelude::*;

use crate::likelihood::{best, log_sum};

/// What is known of a row of the side that others are measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// `ln Σ exp`.
    log_sum: f64,
    /// The most likely token.
    best: usize,
    /// Negative log-likelihood of the token that follows, in nats.
    pub(super) nll: f64,
}

/// How far a row is from the one it is measured by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Distance {
    /// Kullback-Leibler divergence, in nats; infinite if a logit is NaN or `+∞`, or a token that the other row takes for
    /// possible is impossible.
    pub(super) kl: f64,
    /// Whether the most likely token is the same.
    pub(super) same_best: bool,
    /// Negative log-likelihood of the token that follows, in nats; infinite likewise.
    pub(super) nll: f64,
}

/// Looks at rows `[targets.len(), vocabulary]`; `Err` with the first that is not finite.
pub(super) fn rows(logits: &[f32], targets: &[u32]) -> Result<Vec<Row>, usize> {
    let width = width(logits, targets.len());
    let row = |(logits, &target): (&[f32], &u32)| {
        let log_sum = log_sum(logits);
        Row { log_sum, best: best(logits), nll: log_sum - f64::from(logits[target as usize]) }
    };
    let rows: Vec<Row> = logits.par_chunks_exact(width).zip(targets).map(row).collect();
    match rows.iter().position(|row| !row.nll.is_finite()) {
        Some(bad) => Err(bad),
        None => Ok(rows),
    }
}

/// Distances of the rows of `b` from those of `a`, of which `known` tells.
pub(super) fn distances(known: &[Row], (a, b): (&[f32], &[f32]), targets: &[u32]) -> Vec<Distance> {
    let width = width(a, targets.len());
    let pairs = a.par_chunks_exact(width).zip(b.par_chunks_exact(width));
    pairs.zip(known).zip(targets).map(|((pair, row), &target)| distance(row, pair, target)).collect()
}

fn width(logits: &[f32], rows: usize) -> usize {
    (logits.len() / rows.max(1)).max(1)
}

/// `Σ p (ln p - ln q)`, with `ln p - ln q = (a - b) - (ln Σ exp a - ln Σ exp b)`: equal rows have distance 0 exactly.
fn distance(row: &Row, (a, b): (&[f32], &[f32]), target: u32) -> Distance {
    let log_sum = log_sum(b);
    if !log_sum.is_finite() {
        return Distance { kl: f64::INFINITY, same_best: false, nll: f64::INFINITY };
    }
    let mut sum = 0.0;
    for (&a, &b) in a.iter().zip(b) {
        let p = (f64::from(a) - row.log_sum).exp();
        if p > 0.0 {
            sum += p * (f64::from(a) - f64::from(b));
        }
    }
    Distance {
        // Rounding may take a tiny distance below zero.
        kl: (sum - (row.log_sum - log_sum)).max(0.0),
        same_best: best(b) == row.best,
        nll: log_sum - f64::from(b[target as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(a: &[f32], b: &[f32]) -> Distance {
        distances(&rows(a, &[0]).unwrap(), (a, b), &[0])[0]
    }

    #[test]
    fn a_case_computed_by_hand() {
        // p = (1/2, 1/4, 1/4) and q = (1/4, 1/2, 1/4): Σ p ln (p / q) = ln 2 / 2 - ln 2 / 4.
        let (a, b) = ([4.0_f32, 2.0, 2.0].map(f32::ln), [1.0_f32, 2.0, 1.0].map(f32::ln));
        let found = one(&a, &b);
        assert!((found.kl - 2.0_f64.ln() / 4.0).abs() < 1e-7, "{found:?}");
        assert!((found.nll - 4.0_f64.ln()).abs() < 1e-7 && !found.same_best, "{found:?}");
    }

    #[test]
    fn a_constant_that_is_added_to_all_logits_changes_nothing() {
        let a = [3.0, -1.0, 0.5, 0.25];
        let found = one(&a, &a.map(|l| l + 64.0));
        assert!(found.kl < 1e-12 && found.same_best, "{found:?}");
        assert_eq!(one(&a, &a).kl, 0.0);
    }

    #[test]
    fn what_is_not_finite_is_infinitely_far() {
        let a = [1.0, 2.0, 3.0];
        for bad in [f32::NAN, f32::INFINITY] {
            let found = one(&a, &[1.0, bad, 3.0]);
            assert_eq!((found.kl, found.nll, found.same_best), (f64::INFINITY, f64::INFINITY, false));
            assert_eq!(rows(&[1.0, 2.0, bad, 0.0], &[0, 0]).unwrap_err(), 1);
        }
        // A token that is impossible on one side only.
        assert_eq!(one(&a, &[1.0, f32::NEG_INFINITY, 3.0]).kl, f64::INFINITY);
        assert!(one(&[1.0, f32::NEG_INFINITY, 3.0], &a).kl.is_finite());
    }
}
