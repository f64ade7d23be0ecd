//! A piece of a text goes through the model.

use std::ops::Range;

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
    let ids = begun(chunk, how.bos);
    in_sequence(engine, &[], |engine, sequence, _| run(engine, sequence, &ids, how, (observer, go_on)))
}

/// A chunk that starts like a text: with `bos`, if there is one, in place of its first token.
pub(crate) fn begun(chunk: &[u32], bos: Option<u32>) -> Vec<u32> {
    let mut ids = chunk.to_vec();
    if let (Some(first), Some(bos)) = (ids.first_mut(), bos) {
        *first = bos;
    }
    ids
}

/// The steps that read `end` tokens: at most `rows` at a time, and from `logits_from` on, with the logits of all rows, at
/// most `logit_rows`.
pub(crate) fn steps(
    end: usize,
    logits_from: usize,
    (rows, logit_rows): (usize, usize),
) -> impl Iterator<Item = (Range<usize>, LogitRows)> {
    let logits_from = logits_from.min(end);
    let mut at = 0;
    std::iter::from_fn(move || {
        let (to, logits) = match at < logits_from {
            true => ((at + rows).min(logits_from), LogitRows::None),
            false => ((at + logit_rows).min(end), LogitRows::All),
        };
        let step = at..to;
        at = to;
        (!step.is_empty()).then_some((step, logits))
    })
}

/// Works in a sequence that begins with what the caches hold of `prefix`, and ends it whatever happens. `work` gets the
/// number of tokens that are held.
pub(crate) fn in_sequence<T>(
    engine: &mut Engine,
    prefix: &[u32],
    work: impl FnOnce(&mut Engine, SequenceId, usize) -> Result<T, ObserveError>,
) -> Result<T, ObserveError> {
    let (sequence, held) = match prefix {
        [] => (engine.add_sequence()?, 0),
        prefix => engine.add_sequence_with_prefix(prefix)?,
    };
    let result = work(engine, sequence, held);
    first_error(result, engine.remove_sequence(sequence))
}

/// What a step says went wrong explains more than that its sequence cannot be removed after that.
fn first_error<T>(
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
    let options = engine.options();
    let half = ids.len() / 2;
    let logits_from = match how {
        Reading { all_logits: true, .. } => 0,
        Reading { score: true, .. } => half,
        _ => ids.len(),
    };
    let mut likelihood = Likelihood::default();
    for (step, logits) in steps(ids.len(), logits_from, (options.rows, options.logit_rows)) {
        if !go_on() {
            return Ok(None);
        }
        let work = Work::new(sequence, &ids[step.clone()], logits);
        let out = engine.step(&[work], Some(&mut *observer))?;
        // Each row predicts the next token; the last one's is not known.
        let scored = step.start.max(half)..step.end.min(ids.len() - 1);
        if how.score && logits == LogitRows::All && !scored.is_empty() {
            let vocabulary = out.len() / step.len();
            let rows = scored.start - step.start..scored.end - step.start;
            let out = &out[rows.start * vocabulary..rows.end * vocabulary];
            likelihood.add(out, &ids[scored.start + 1..scored.end + 1]);
        }
    }
    Ok(Some(likelihood))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_where_logits_begin() {
        let found = |end, from| steps(end, from, (4, 3)).collect::<Vec<_>>();
        let (none, all) = (LogitRows::None, LogitRows::All);
        assert_eq!(found(10, 6), [(0..4, none), (4..6, none), (6..9, all), (9..10, all)]);
        assert_eq!(found(5, 9), [(0..4, none), (4..5, none)]);
        assert_eq!(found(2, 0), [(0..2, all)]);
        assert_eq!(found(0, 0), []);
    }

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
