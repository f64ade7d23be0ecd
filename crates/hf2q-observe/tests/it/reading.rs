//! Chunks: what is scored, what is asked between steps.

use hf2q_engine::LogitRows;
use hf2q_model::{Model, toy};
use hf2q_observe::{Likelihood, ObserveError, Reading, read_chunk};

use crate::support::{ALL_LOGITS, CHUNK, PLAIN, Setup, cpu, open, tokens};

fn model() -> Model {
    toy::all(9).into_iter().find(|(name, _)| *name == "gemma3").unwrap().1
}

fn scored(setup: Setup, how: Reading, chunk: &[u32]) -> Likelihood {
    let (mut engine, mut collector) = open(&model(), &cpu(2), setup);
    read_chunk(&mut engine, chunk, how, &mut collector, &mut || true).unwrap().unwrap()
}

const SCORED: Reading = Reading { bos: Some(2), all_logits: false, score: true };

#[test]
fn the_second_half_is_scored_whatever_the_steps() {
    let chunk = tokens(CHUNK);
    // The plain way: all logits at once.
    let (mut engine, _) = open(&model(), &cpu(2), PLAIN);
    let sequence = engine.add_sequence().unwrap();
    let mut given = chunk.clone();
    given[0] = 2;
    let mut rows = Vec::new();
    engine
        .extend(sequence, &given, LogitRows::All, |row| {
            rows.push(row.to_vec());
            true
        })
        .unwrap();
    let mut expected = Likelihood::default();
    for i in CHUNK / 2..CHUNK - 1 {
        expected.add(&rows[i], &chunk[i + 1..i + 2]);
    }
    assert_eq!(expected.tokens, CHUNK / 2 - 1);
    for (rows, logit_rows) in [(CHUNK, CHUNK), (7, 5), (CHUNK, 1), (1, 1)] {
        let setup = Setup { rows, logit_rows, ..PLAIN };
        for all_logits in [false, true] {
            assert_eq!(scored(setup, Reading { all_logits, ..SCORED }, &chunk), expected);
        }
    }
    // Another first token is seen by all that follow.
    assert_ne!(scored(PLAIN, Reading { bos: Some(3), ..SCORED }, &chunk), expected);
    assert_eq!(scored(PLAIN, Reading { score: false, ..SCORED }, &chunk).tokens, 0);
}

#[test]
fn short_chunks() {
    for n in [1, 2, 3] {
        let read = scored(PLAIN, SCORED, &tokens(n));
        assert_eq!(read.tokens, (n - n / 2).saturating_sub(1), "{n}");
    }
    assert_eq!(scored(PLAIN, SCORED, &[]).tokens, 0);
}

#[test]
fn reading_stops_when_told_and_leaves_the_engine_as_it_was() {
    let (mut engine, mut collector) = open(&model(), &cpu(1), Setup { rows: 8, logit_rows: 8, ..PLAIN });
    let mut steps = 0;
    let mut go_on = || {
        steps += 1;
        steps < 3
    };
    let stopped = read_chunk(&mut engine, &tokens(CHUNK), ALL_LOGITS, &mut collector, &mut go_on).unwrap();
    assert!(stopped.is_none());
    assert_eq!(steps, 3);
    let too_long = tokens(CHUNK + 1);
    let error = read_chunk(&mut engine, &too_long, ALL_LOGITS, &mut collector, &mut || true).unwrap_err();
    assert!(matches!(error, ObserveError::Engine(_)));
    // The one sequence that the engine has is free again.
    read_chunk(&mut engine, &tokens(CHUNK), ALL_LOGITS, &mut collector, &mut || true).unwrap().unwrap();
}
