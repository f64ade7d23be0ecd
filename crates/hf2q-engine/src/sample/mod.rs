//! Logits to token.
//!
//! Order: bias, penalties, top-k, typical, top-p, min-p, temperature, draw. The draw is keyed by (seed, sequence,
//! position) and nothing else, so an answer does not depend on what else is computed, nor on what was drawn before.

mod candidates;
mod exp;
mod order;
mod penalties;
mod philox;

use std::collections::BTreeMap;

use crate::constraint::TokenSet;
use candidates::Candidates;

/// How tokens are drawn. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits of the candidates; 0 takes the most likely token.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 or less: all.
    pub top_k: i64,
    /// Keep the most likely tokens until their probability reaches this; 1 or more: all.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the most likely one; 0 or less: all.
    pub min_p: f32,
    /// Locally typical sampling (Meister et al. 2023): keep the tokens whose information is nearest to the entropy, until
    /// their probability reaches this; 1 or more: all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens (Keskar et al. 2019); 1: off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logits of recent tokens; 0: off.
    pub presence_penalty: f32,
    /// Subtracted for every recent occurrence; 0: off.
    pub frequency_penalty: f32,
    /// How many of the latest tokens the penalties look at, the prompt's included.
    pub penalty_last_n: usize,
    /// Added to the logits of single tokens; negative infinity forbids one.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Key of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

/// A parameter outside its range, or logits that allow no token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A parameter outside its range.
    #[error("{name} is {found}, accepted is {accepted}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: f32,
        /// The range.
        accepted: &'static str,
    },
    /// Not one logit is a finite number: the model's output is broken, or every token is forbidden.
    #[error(
        "none of the {vocabulary} logits is a finite number: the weights are damaged, or logit_bias or a constraint forbids every token"
    )]
    NoFiniteLogit {
        /// Number of logits.
        vocabulary: usize,
    },
}

/// A token and what was odd about its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The token.
    pub token: u32,
    /// Logits that the model gave as NaN or infinite; they were never candidates.
    pub non_finite: usize,
}

/// Draws tokens. It has no state: the same logits, history and sequence give the same token.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
}

impl Sampler {
    /// Checks the parameters.
    pub fn new(sampling: Sampling) -> Result<Self, SampleError> {
        let s = &sampling;
        let finite = "a finite number";
        parameter("temperature", s.temperature, s.temperature >= 0.0, "0 or more")?;
        parameter("top_p", s.top_p, s.top_p >= 0.0, "0 or more")?;
        parameter("min_p", s.min_p, s.min_p <= 1.0, "at most 1")?;
        parameter("typical_p", s.typical_p, s.typical_p >= 0.0, "0 or more")?;
        parameter("repetition_penalty", s.repetition_penalty, s.repetition_penalty > 0.0, "above 0")?;
        parameter("presence_penalty", s.presence_penalty, true, finite)?;
        parameter("frequency_penalty", s.frequency_penalty, true, finite)?;
        for &bias in s.logit_bias.values() {
            if bias.is_nan() || bias == f32::INFINITY {
                let accepted = "a finite number or negative infinity";
                return Err(SampleError::Parameter { name: "logit_bias", found: bias, accepted });
            }
        }
        Ok(Self { sampling })
    }

    /// Draws the token that follows `history` (the prompt and everything drawn so far) in a sequence.
    pub fn sample(&self, logits: &[f32], history: &[u32], sequence: usize) -> Result<Drawn, SampleError> {
        self.sample_allowed(logits, history, sequence as u64, None)
    }

    /// The same of the tokens that are `allowed` (`None`: all); `draws` is the part of the key that a sequence has elsewhere.
    pub fn sample_allowed(
        &self,
        logits: &[f32],
        history: &[u32],
        draws: u64,
        allowed: Option<&TokenSet>,
    ) -> Result<Drawn, SampleError> {
        let s = &self.sampling;
        let candidates::Scan { max, non_finite } = candidates::scan(logits);
        let adjusted = penalties::apply(logits, history, s);
        let masked = allowed.map(|set| mask(adjusted.as_deref().unwrap_or(logits), set));
        let logits = masked.as_deref().or(adjusted.as_deref()).unwrap_or(logits);
        let empty = SampleError::NoFiniteLogit { vocabulary: logits.len() };
        if s.temperature == 0.0 {
            // What was changed is looked at anew.
            let changed = masked.is_some() || adjusted.is_some();
            let token = if changed { candidates::arg_max(logits) } else { candidates::first_of(logits, max) };
            let token = token.ok_or(empty)?;
            return Ok(Drawn { token, non_finite });
        }
        let mut kept = Candidates::top_k(logits, s.top_k).ok_or(empty)?;
        kept.typical(s.typical_p);
        kept.top_p(s.top_p);
        kept.min_p(s.min_p);
        let token = kept.draw(s.temperature, philox::uniform(s.seed, draws, history.len() as u64));
        Ok(Drawn { token, non_finite })
    }
}

/// Logits in which tokens outside the set are impossible.
fn mask(logits: &[f32], allowed: &TokenSet) -> Vec<f32> {
    let mut out = vec![f32::NEG_INFINITY; logits.len()];
    for ((out, logits), mut word) in out.chunks_mut(32).zip(logits.chunks(32)).zip(allowed.words()) {
        while word != 0 {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            if let (Some(out), Some(&logit)) = (out.get_mut(bit), logits.get(bit)) {
                *out = logit;
            }
        }
    }
    out
}

/// The natural logarithm of the sum of `e^logit` over the finite ones; `None` if there are none.
pub(crate) fn log_sum(logits: &[f32]) -> Option<f64> {
    let max = candidates::scan(logits).max?;
    Some(f64::from(max) + exp::sum(logits, max, 1.0).ln())
}

/// The `n` highest finite logits and their tokens, in descending order; of equals the lowest id first.
pub(crate) fn most_likely(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    order::highest(logits, n)
}

fn parameter(name: &'static str, found: f32, ok: bool, accepted: &'static str) -> Result<(), SampleError> {
    if ok && found.is_finite() { Ok(()) } else { Err(SampleError::Parameter { name, found, accepted }) }
}

#[cfg(test)]
mod tests;
