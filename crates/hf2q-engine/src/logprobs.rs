//! Logarithmic probabilities of tokens, from the logits as the model gave them.

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
        let finite = || logits.iter().copied().filter(|l| l.is_finite());
        let max = f64::from(finite().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = finite().map(|l| (f64::from(l) - max).exp()).sum();
        let of = |logit: f32| {
            if logit.is_finite() { (f64::from(logit) - max - total.ln()) as f32 } else { f32::NEG_INFINITY }
        };
        let best = crate::sample::most_likely(logits, top);
        Self {
            logprob: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&l| of(l)),
            top: best.into_iter().map(|(id, logit)| (id, of(logit))).collect(),
        }
    }
}
