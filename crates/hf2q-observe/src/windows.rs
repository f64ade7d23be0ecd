//! Texts longer than what is read at once.

use std::ops::Range;

use hf2q_engine::{Engine, LogitRows, SequenceId, Work};

use crate::chunk::{in_sequence, steps};
use crate::error::ObserveError;
use crate::likelihood::{Likelihood, not_finite};

/// A part of a text that is read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// The first of them that is scored; earlier windows score those before.
    pub scored_from: usize,
}

/// Windows of at most `length` tokens, each `stride` further than the one before; each token is scored once, by the
/// first window that has it. With a stride of `length` the windows lie side by side; with a smaller one all tokens but
/// the first `length` have at least `length - stride` before them.
///
/// # Panics
/// If `stride` is 0 or more than `length`: a mistake of the caller's.
pub fn windows(tokens: usize, length: usize, stride: usize) -> Vec<Window> {
    assert!((1..=length).contains(&stride), "a stride of {stride} in windows of {length}");
    let mut windows: Vec<Window> = Vec::new();
    let mut scored_from = 0;
    while scored_from < tokens {
        let start = windows.len() * stride;
        let end = (start + length).min(tokens);
        windows.push(Window { tokens: start..end, scored_from });
        scored_from = end;
    }
    windows
}

/// Scores the tokens of a window from `skipped` on, in a sequence of its own that starts with `bos`. Without one the
/// window's first token is given, not predicted. `go_on` is asked before each step; `None` if it said no.
///
/// # Errors
/// The window does not fit the engine's context, the backend fails, or logits are not finite.
pub fn read_window(
    engine: &mut Engine,
    (bos, tokens): (Option<u32>, &[u32]),
    skipped: usize,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Likelihood>, ObserveError> {
    let given: Vec<u32> = bos.into_iter().chain(tokens.iter().copied()).collect();
    // Each row predicts the token after it.
    let first = (skipped + usize::from(bos.is_some())).saturating_sub(1);
    in_sequence(engine, &[], |engine, sequence, _| read(engine, sequence, (&given, first), go_on))
}

fn read(
    engine: &mut Engine,
    sequence: SequenceId,
    (given, first): (&[u32], usize),
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Likelihood>, ObserveError> {
    let options = engine.options();
    let mut likelihood = Likelihood::default();
    let end = given.len().saturating_sub(1);
    for (step, logits) in steps(end, first, (options.rows, options.logit_rows)) {
        if !go_on() {
            return Ok(None);
        }
        let (start, targets) = (step.start, &given[step.start + 1..=step.end]);
        let out = engine.step(&[Work::new(sequence, &given[step], logits)], None)?;
        if logits == LogitRows::All {
            likelihood.add(out, targets);
            if let Some(row) = not_finite(out, targets) {
                return Err(ObserveError::Logits { name: "the model".to_owned(), position: start + row + 1 });
            }
        }
    }
    Ok(Some(likelihood))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tokens: usize, length: usize, stride: usize) -> Vec<(Range<usize>, usize)> {
        windows(tokens, length, stride).into_iter().map(|w| (w.tokens, w.scored_from)).collect()
    }

    #[test]
    fn windows_side_by_side() {
        assert_eq!(found(10, 4, 4), [(0..4, 0), (4..8, 4), (8..10, 8)]);
        assert_eq!(found(4, 4, 4), [(0..4, 0)]);
        assert_eq!(found(0, 4, 4), []);
    }

    #[test]
    fn windows_that_overlap_score_each_token_once() {
        assert_eq!(found(11, 6, 2), [(0..6, 0), (2..8, 6), (4..10, 8), (6..11, 10)]);
        for (tokens, length, stride) in [(1, 1, 1), (100, 7, 3), (99, 50, 1), (64, 64, 32), (65, 64, 32)] {
            let mut next = 0;
            for w in windows(tokens, length, stride) {
                assert_eq!(w.scored_from, next);
                assert!(w.tokens.len() <= length && w.scored_from < w.tokens.end);
                let least = if w.tokens.start == 0 { 0 } else { length - stride };
                assert!(w.scored_from - w.tokens.start >= least);
                next = w.tokens.end;
            }
            assert_eq!(next, tokens);
        }
    }
}
