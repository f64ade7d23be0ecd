//! A prompt goes through the model, and what it answers.

use std::collections::HashMap;

use hf2q_engine::{Engine, LogitRows, SequenceId, Work};

use super::{Steps, Tracer};
use crate::chunk::in_sequence;
use crate::error::ObserveError;
use crate::likelihood::best;

/// A step that was traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Its number.
    pub step: usize,
    /// Position of its first row; the others follow.
    pub first: usize,
    /// The tokens of its rows.
    pub tokens: Vec<u32>,
}

/// Reads a prompt in steps of as many rows as the engine takes, each with the logits of its last row, and shows those of
/// `steps` to the tracer. Steps behind the prompt are of one token each, the most likely one. `go_on` is asked before each
/// step; `None` if it said no.
///
/// # Errors
/// The tokens do not fit the engine's context, the backend fails or does not show a tensor.
pub fn trace(
    engine: &mut Engine,
    tracer: &mut Tracer,
    (prompt, steps): (&[u32], &Steps),
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<TraceStep>>, ObserveError> {
    in_sequence(engine, &[], |engine, sequence, _| read(engine, sequence, (tracer, prompt, steps), go_on))
}

fn read(
    engine: &mut Engine,
    sequence: SequenceId,
    (tracer, prompt, steps): (&mut Tracer, &[u32], &Steps),
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<TraceStep>>, ObserveError> {
    let rows = engine.options().rows;
    let chunks = prompt.len().div_ceil(rows);
    let mut traced = Vec::new();
    let mut next = 0;
    for step in 0..steps.count(chunks) {
        if !go_on() {
            return Ok(None);
        }
        let first = engine.len(sequence)?;
        let tokens = match step < chunks {
            true => prompt[step * rows..prompt.len().min((step + 1) * rows)].to_vec(),
            false => vec![next],
        };
        let work = Work::new(sequence, &tokens, LogitRows::Last);
        tracer.step = step;
        let is_chosen = steps.has(step, chunks);
        let logits = match is_chosen {
            true => engine.step(&[work], Some(tracer))?,
            false => engine.step(&[work], None)?,
        };
        next = u32::try_from(best(logits)).unwrap_or(0);
        if let Some(op) = &tracer.hidden {
            return Err(ObserveError::Hidden { op: op.clone() });
        }
        if is_chosen {
            traced.push(TraceStep { step, first, tokens });
        }
    }
    Ok(Some(traced))
}

/// Tokens and positions of steps, as JSON.
pub(super) fn metadata(steps: &[TraceStep]) -> HashMap<String, String> {
    let object = |of: &dyn Fn(&TraceStep) -> Vec<usize>| {
        let items = steps.iter().map(|s| format!("\"{}\":{:?}", s.step, of(s)));
        format!("{{{}}}", items.collect::<Vec<_>>().join(","))
    };
    let positions = |s: &TraceStep| (s.first..s.first + s.tokens.len()).collect::<Vec<_>>();
    let last = |s: &TraceStep| vec![s.first + s.tokens.len() - 1];
    let tokens = |s: &TraceStep| s.tokens.iter().map(|&t| t as usize).collect();
    [
        ("positions".to_owned(), object(&positions)),
        ("logit_positions".to_owned(), object(&last)),
        ("tokens".to_owned(), object(&tokens)),
    ]
    .into()
}
