//! A piece of a text goes through the model.

use hf2q_engine::{Engine, EngineError, LogitRows, SequenceId, Work};
use hf2q_plan::Observer;

use crate::error::ObserveError;
use crate::likelihood::Likelihood;

/// How a chunk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Takes the place of each chunk's first token: every chunk starts like a text.
    pub bos: Option<u32>,
    /// Whether the matrix that makes the logits sees every row; otherwise it sees those that are scored.
    pub all_logits: bool,
    /// Whether the tokens of the second half, which have a context, are scored.
    pub score: bool,
}

/// Computes a chunk in a sequence of its own, and shows `observer` every step. `go_on` is asked before each step;
/// `None` if it said no.
///
/// # Errors
/// The chunk does not fit the engine's context, or the backend fails.
pub fn read_chunk(
    engine: &mut Engine,
    chunk: &[u32],
    how: Reading,
    observer: &mut dyn Observer,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Likelihood>, ObserveError> {
    let mut ids = chunk.to_vec();
    if let (Some(first), Some(bos)) = (ids.first_mut(), how.bos) {
        *first = bos;
    }
    let sequence = engine.add_sequence()?;
    let result = run(engine, sequence, &ids, how, (observer, go_on));
    first_error(result, engine.remove_sequence(sequence))
}

/// What a step says went wrong explains more than that its sequence cannot be removed after that.
pub(crate) fn first_error<T>(
    result: Result<T, ObserveError>,
    removed: Result<(), EngineError>,
) -> Result<T, ObserveError> {
    let found = result?;
    removed?;
    Ok(found)
}

fn run(
    engine: &mut Engine,
    sequence: SequenceId,
    ids: &[u32],
    how: Reading,
    (observer, go_on): (&mut dyn Observer, &mut dyn FnMut() -> bool),
) -> Result<Option<Likelihood>, ObserveError> {
    let (rows, logit_rows) = (engine.options().rows, engine.options().logit_rows);
    let half = ids.len() / 2;
    let logits_from = match how {
        Reading { all_logits: true, .. } => 0,
        Reading { score: true, .. } => half,
        _ => ids.len(),
    };
    let mut likelihood = Likelihood::default();
    let mut at = 0;
    while at < ids.len() {
        if !go_on() {
            return Ok(None);
        }
        let end = match at < logits_from {
            true => (at + rows).min(logits_from),
            false => (at + logit_rows).min(ids.len()),
        };
        let logits = if at < logits_from { LogitRows::None } else { LogitRows::All };
        let out = engine.step(&[Work { sequence, tokens: &ids[at..end], logits }], Some(&mut *observer))?;
        // Each row predicts the next token; the last one's is not known.
        let scored = at.max(half)..end.min(ids.len() - 1);
        if how.score && logits == LogitRows::All && !scored.is_empty() {
            let vocabulary = out.len() / (end - at);
            let out = &out[(scored.start - at) * vocabulary..(scored.end - at) * vocabulary];
            likelihood.add(out, &ids[scored.start + 1..scored.end + 1]);
        }
        at = end;
    }
    Ok(Some(likelihood))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_reported() {
        let step = || ObserveError::Engine(EngineError::EmptyPrompt);
        let removal = || EngineError::TooManySequences { max: 1 };
        for (result, removed, expected) in [
            (Err(step()), Err(removal()), Err(step().to_string())),
            (Err(step()), Ok(()), Err(step().to_string())),
            (Ok(7), Err(removal()), Err(removal().to_string())),
            (Ok(7), Ok(()), Ok(7)),
        ] {
            assert_eq!(first_error(result, removed).map_err(|error| error.to_string()), expected);
        }
    }
}
