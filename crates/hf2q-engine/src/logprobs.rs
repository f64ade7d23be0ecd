//! Logarithmic probabilities of tokens, from the logits as the model gave them.

use crate::sample::{log_sum, most_likely};

/// A token's natural logarithmic probability: before bias, penalties, constraint, filters and temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// That of the token itself.
    pub logprob: f32,
    /// The most likely tokens and theirs, in descending order; of equals the lowest id first.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Of `token` and the `top` most likely ones. Logits that are not finite count as impossible.
    pub(crate) fn new(logits: &[f32], token: u32, top: usize) -> Self {
        let total = log_sum(logits).unwrap_or(f64::INFINITY);
        let of = |logit: f32| {
            if logit.is_finite() { (f64::from(logit) - total) as f32 } else { f32::NEG_INFINITY }
        };
        Self {
            logprob: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&l| of(l)),
            top: most_likely(logits, top).into_iter().map(|(id, logit)| (id, of(logit))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let logits = [1.0, 3.0, f32::NAN, -2.0, 3.0];
        let got = Logprobs::new(&logits, 3, 3);
        let total = (1.0_f64.exp() + 2.0 * 3.0_f64.exp() + (-2.0_f64).exp()).ln();
        let near = |found: f32, logit: f64| (f64::from(found) - (logit - total)).abs() < 1e-5;
        assert!(near(got.logprob, -2.0));
        assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 4, 0]);
        assert!(near(got.top[0].1, 3.0) && near(got.top[2].1, 1.0));
        assert_eq!(Logprobs::new(&logits, 2, 0).logprob, f32::NEG_INFINITY);
        assert_eq!(Logprobs::new(&[f32::NAN], 0, 1).top, []);
    }
}
