//! Bias and penalties for recent tokens.

use std::collections::BTreeMap;

use super::Sampling;

/// Logits after bias and penalties; `None` where the parameters change nothing.
pub(super) fn apply(logits: &[f32], history: &[u32], s: &Sampling) -> Option<Vec<f32>> {
    let penalties = s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
    if s.logit_bias.is_empty() && !penalties {
        return None;
    }
    let mut out = logits.to_vec();
    for (&token, bias) in &s.logit_bias {
        if let Some(l) = out.get_mut(token as usize) {
            *l += bias;
        }
    }
    if penalties {
        let recent = &history[history.len().saturating_sub(s.penalty_last_n)..];
        let mut counts: BTreeMap<u32, f32> = BTreeMap::new();
        for &token in recent {
            *counts.entry(token).or_default() += 1.0;
        }
        for (token, count) in counts {
            if let Some(l) = out.get_mut(token as usize) {
                *l = if *l > 0.0 { *l / s.repetition_penalty } else { *l * s.repetition_penalty };
                *l -= s.presence_penalty + count * s.frequency_penalty;
            }
        }
    }
    Some(out)
}
