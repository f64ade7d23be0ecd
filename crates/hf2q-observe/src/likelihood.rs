//! How well a text is predicted.

use rayon::prelude::*;

/// Negative log-likelihoods of tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Likelihood {
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
    /// How many they are.
    pub tokens: usize,
}

impl Likelihood {
    /// Adds the likelihoods of `targets`; `logits` are rows `[targets.len(), vocabulary]`.
    pub fn add(&mut self, logits: &[f32], targets: &[u32]) {
        let vocabulary = logits.len() / targets.len().max(1);
        let rows = logits.par_chunks_exact(vocabulary.max(1)).zip(targets);
        let all: Vec<f64> = rows.map(|(row, &token)| surprise(row, token as usize)).collect();
        for nll in all {
            self.push(nll);
        }
    }

    /// Adds one token's, in nats.
    pub fn push(&mut self, nll: f64) {
        self.sum += nll;
        self.squares += nll * nll;
        self.tokens += 1;
    }

    /// Adds those of another text.
    pub fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.squares += other.squares;
        self.tokens += other.tokens;
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum / self.tokens.max(1) as f64
    }

    /// Standard error of the mean, if tokens were independent; `None` for fewer than two, NaN if a likelihood is not
    /// finite.
    pub fn mean_error(&self) -> Option<f64> {
        let n = self.tokens as f64;
        let variance = self.squares / n - self.mean() * self.mean();
        (self.tokens > 1).then(|| (variance.clamp(0.0, f64::INFINITY) / (n - 1.0)).sqrt())
    }

    /// The exponential of the mean.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the perplexity, if tokens were independent; `None` for fewer than two.
    pub fn error(&self) -> Option<f64> {
        Some(self.mean_error()? * self.perplexity())
    }
}

/// The first row of `logits` whose likelihood of its target is not finite.
pub(crate) fn not_finite(logits: &[f32], targets: &[u32]) -> Option<usize> {
    let mut rows = logits.chunks_exact((logits.len() / targets.len().max(1)).max(1)).zip(targets);
    rows.position(|(row, &token)| !surprise(row, token as usize).is_finite())
}

/// `ln Σ exp(l) - l[token]`.
fn surprise(logits: &[f32], token: usize) -> f64 {
    log_sum(logits) - f64::from(logits[token])
}

/// `ln Σ exp(l)`; no finite number if a logit is NaN or `+∞`, or all are `-∞`.
pub(crate) fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    sum.ln() + max
}

/// The most likely token: of several the first.
pub(crate) fn best(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, &l) in logits.iter().enumerate() {
        if l > logits[best] || logits[best].is_nan() {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_odds() {
        let mut l = Likelihood::default();
        l.add(&[0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0], &[1, 3]);
        assert!((l.perplexity() - 4.0).abs() < 1e-9, "{l:?}");
        assert!(l.error().unwrap() < 1e-6);
    }

    #[test]
    fn a_certain_token_and_a_hopeless_one() {
        let mut sure = Likelihood::default();
        sure.add(&[100.0, 0.0], &[0]);
        let mut wrong = Likelihood::default();
        wrong.add(&[100.0, 0.0], &[1]);
        assert!(sure.sum.abs() < 1e-6 && (wrong.sum - 100.0).abs() < 1e-6);
        sure.merge(&wrong);
        assert_eq!(sure.tokens, 2);
        // Mean 50, deviation 50, over the root of one.
        assert!((sure.error().unwrap() / sure.perplexity() - 50.0).abs() < 1e-3);
    }

    #[test]
    fn what_is_not_finite_has_no_error() {
        for bad in [f64::INFINITY, f64::NAN] {
            let mut l = Likelihood::default();
            l.push(bad);
            l.push(1.0);
            assert!(l.mean_error().unwrap().is_nan() && !l.perplexity().is_finite(), "{l:?}");
        }
    }

    #[test]
    fn one_token_has_no_deviation() {
        let mut l = Likelihood::default();
        l.add(&[1.0, 2.0], &[0]);
        assert_eq!(l.error(), None);
    }

    #[test]
    fn the_first_of_the_most_likely_is_the_best() {
        for (logits, expected) in [
            (vec![1.0, 5.0, 5.0], 1),
            (vec![f32::NAN, -3.0, -2.0], 2),
            (vec![7.0], 0),
            (vec![f32::NAN, f32::NAN], 1),
        ] {
            assert_eq!(best(&logits), expected, "{logits:?}");
        }
    }
}
