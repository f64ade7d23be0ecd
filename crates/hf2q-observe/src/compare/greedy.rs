//! Greedy runs: how long a candidate says the same as the reference.
//!
//! Until its first other token a candidate's run has the reference's tokens as its history. So the reference alone
//! decodes, and a candidate reads the reference's run as a text: where its most likely token is another one, its own run
//! would have left. Both begin with what their caches still hold of the chunk.

use hf2q_engine::{Engine, LogitRows, SequenceId};

use super::{Comparer, GoOn};
use crate::chunk::{begun, in_sequence};
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
        let prompt = begun(&ids[..ids.len() / 2], bos);
        if prompt.is_empty() || length == 0 {
            return Ok(true);
        }
        let run = in_sequence(&mut self.reference.engine, &prompt, |engine, sequence, held| {
            decode(engine, sequence, &prompt[held..], (length, stop), go_on)
        })?;
        let Some(run) = run else { return Ok(false) };
        for candidate in &mut self.candidates {
            let same = in_sequence(&mut candidate.side.engine, &prompt, |engine, sequence, held| {
                follow(engine, sequence, &prompt[held..], &run, go_on)
            })?;
            let Some(same) = same else { return Ok(false) };
            candidate.runs.push(Run { length: run.len(), same: (same < run.len()).then_some(same) });
        }
        Ok(true)
    }
}

/// The reference's run after the rest of its prompt, its stop token included: leaving there is a difference too.
fn decode(
    engine: &mut Engine,
    sequence: SequenceId,
    prompt: &[u32],
    (length, stop): (usize, &[u32]),
    go_on: GoOn<'_>,
) -> Result<Option<Vec<u32>>, ObserveError> {
    let mut run = Vec::new();
    let mut given = prompt.to_vec();
    let mut go = true;
    while go && run.len() < length && run.last().is_none_or(|last| !stop.contains(last)) {
        let mut next = None;
        engine.extend(sequence, &given, LogitRows::Last, |logits| {
            next = (!logits.is_empty()).then(|| best(logits));
            go = go_on();
            go
        })?;
        given = next.into_iter().filter_map(|token| u32::try_from(token).ok()).collect();
        run.extend(&given);
    }
    Ok(go.then_some(run))
}

/// Tokens of `run` that a side, after the rest of its prompt, would have said too before its first other one.
fn follow(
    engine: &mut Engine,
    sequence: SequenceId,
    prompt: &[u32],
    run: &[u32],
    go_on: GoOn<'_>,
) -> Result<Option<usize>, ObserveError> {
    // The last token is said, not read.
    let text = [prompt, &run[..run.len() - 1]].concat();
    let first = prompt.len() - 1;
    let mut go = true;
    engine.extend(sequence, &text[..first], LogitRows::None, |_| {
        go = go_on();
        go
    })?;
    let (mut same, mut differs) = (0, false);
    if go {
        engine.extend(sequence, &text[first..], LogitRows::All, |logits| {
            differs = run.get(same).is_none_or(|&token| best(logits) != token as usize);
            same += usize::from(!differs);
            go = go_on();
            go && !differs
        })?;
    }
    Ok((go || differs).then_some(same))
}
