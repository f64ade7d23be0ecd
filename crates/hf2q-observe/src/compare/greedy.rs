//! Greedy runs: how long a candidate says the same as the reference.
//!
//! Until its first other token a candidate's run has the reference's tokens as its history. So the reference alone
//! decodes, and a candidate reads the reference's run as a text: where its most likely token is another one, its own run
//! would have left. Both begin with what their caches still hold of the chunk.

use hf2q_engine::LogitRows;

use super::side::Opened;
use super::{Comparer, GoOn};
use crate::error::ObserveError;
use crate::likelihood::best;

/// One run of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Tokens of the reference's run.
    pub(super) length: usize,
    /// Those before the first that differs; `None`: all.
    pub(super) same: Option<usize>,
}

impl Comparer {
    /// Continues the first half of a chunk greedily with at most `length` tokens; a token of `stop` ends a run. Fastest
    /// right after [`Comparer::chunk`] of the same chunk. Returns `false` if `go_on` did.
    ///
    /// # Errors
    /// Prompt and run do not fit a context, or a backend fails.
    pub fn greedy(
        &mut self,
        (ids, bos): (&[u32], Option<u32>),
        (length, stop): (usize, &[u32]),
        go_on: GoOn<'_>,
    ) -> Result<bool, ObserveError> {
        let mut prompt = ids[..ids.len() / 2].to_vec();
        if let (Some(first), Some(bos)) = (prompt.first_mut(), bos) {
            *first = bos;
        }
        if prompt.is_empty() || length == 0 {
            return Ok(true);
        }
        let Some(run) = decode(&mut self.reference, &prompt, (length, stop), go_on)? else {
            return Ok(false);
        };
        for candidate in &mut self.candidates {
            let Some(same) = follow(&mut candidate.side, &prompt, &run, go_on)? else { return Ok(false) };
            candidate.runs.push(Run { length: run.len(), same: (same < run.len()).then_some(same) });
        }
        Ok(true)
    }
}

/// The reference's run, its stop token included: leaving there is a difference too.
fn decode(
    side: &mut Opened,
    prompt: &[u32],
    (length, stop): (usize, &[u32]),
    go_on: GoOn<'_>,
) -> Result<Option<Vec<u32>>, ObserveError> {
    let (sequence, held) = side.engine.add_sequence_with_prefix(prompt)?;
    let mut run = Vec::new();
    let mut given = prompt[held..].to_vec();
    let mut go = true;
    while go && run.len() < length && run.last().is_none_or(|last| !stop.contains(last)) {
        let mut next = None;
        side.engine.extend(sequence, &given, LogitRows::Last, |logits| {
            next = (!logits.is_empty()).then(|| best(logits));
            go = go_on();
            go
        })?;
        given = next.into_iter().filter_map(|token| u32::try_from(token).ok()).collect();
        run.extend(&given);
    }
    side.engine.remove_sequence(sequence)?;
    Ok(go.then_some(run))
}

/// Tokens of `run` that a side would have said too before its first other one.
fn follow(
    side: &mut Opened,
    prompt: &[u32],
    run: &[u32],
    go_on: GoOn<'_>,
) -> Result<Option<usize>, ObserveError> {
    // The last token is said, not read.
    let text = [prompt, &run[..run.len() - 1]].concat();
    let (sequence, held) = side.engine.add_sequence_with_prefix(prompt)?;
    let first = prompt.len() - 1;
    let mut go = true;
    side.engine.extend(sequence, &text[held..first], LogitRows::None, |_| {
        go = go_on();
        go
    })?;
    let (mut same, mut differs) = (0, false);
    if go {
        side.engine.extend(sequence, &text[first..], LogitRows::All, |logits| {
            differs = run.get(same).is_none_or(|&token| best(logits) != token as usize);
            same += usize::from(!differs);
            go = go_on();
            go && !differs
        })?;
    }
    side.engine.remove_sequence(sequence)?;
    Ok((go || differs).then_some(same))
}
