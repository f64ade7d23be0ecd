//! Answers, token by token.

use hf2q_engine::{EngineError, EngineOptions, Finish, Generation, Request, Sampler, Sampling};

use crate::support::{SIZES, engine, tokens, windowed};

/// Tokens and end of an answer in a fresh sequence.
fn answer(
    sampling: Sampling,
    options: EngineOptions,
    stop: &[u32],
    max_tokens: Option<usize>,
) -> (Vec<u32>, Finish) {
    let mut engine = engine(&windowed(), options);
    let sampler = Sampler::new(sampling).unwrap();
    let sequence = engine.add_sequence().unwrap();
    let prompt = tokens(30, 1);
    let request = Request { sequence, prompt: &prompt, stop, max_tokens };
    let mut generation = Generation::start(&mut engine, &sampler, request, &[], || true).unwrap().unwrap();
    let mut drawn = Vec::new();
    loop {
        match generation.next_token().unwrap() {
            Ok(token) => drawn.push(token),
            Err(finish) => return (drawn, finish),
        }
    }
}

#[test]
fn the_chunk_does_not_change_a_drawn_answer() {
    let warm = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let with = |rows| answer(warm.clone(), EngineOptions { rows, logit_rows: 1, ..SIZES }, &[], Some(20));
    let (drawn, finish) = with(48);
    assert_eq!((drawn.len(), finish), (20, Finish::Length));
    assert_eq!(with(1).0, drawn);
    assert_eq!(with(7).0, drawn);
}

#[test]
fn a_stop_token_ends_the_answer_and_is_not_part_of_it() {
    let (drawn, _) = answer(Sampling::default(), SIZES, &[], Some(12));
    let stop = drawn[5];
    let first = drawn.iter().position(|&t| t == stop).unwrap();
    let (cut, finish) = answer(Sampling::default(), SIZES, &[stop], Some(12));
    assert_eq!((cut.as_slice(), finish), (&drawn[..first], Finish::Stop(stop)));
}

#[test]
fn a_full_context_ends_the_answer() {
    let (drawn, finish) = answer(Sampling::default(), EngineOptions { context: 40, ..SIZES }, &[], None);
    // Ten places are left after the prompt, and the last token drawn needs none.
    assert_eq!((drawn.len(), finish), (11, Finish::Length));
}

#[test]
fn no_tokens_are_drawn_if_none_are_wanted() {
    assert_eq!(answer(Sampling::default(), SIZES, &[], Some(0)), (Vec::new(), Finish::Length));
}

#[test]
fn a_prompt_can_be_cancelled_between_chunks() {
    let mut engine = engine(&windowed(), EngineOptions { rows: 16, logit_rows: 16, ..SIZES });
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let sequence = engine.add_sequence().unwrap();
    let prompt = tokens(100, 1);
    let request = Request { sequence, prompt: &prompt, stop: &[], max_tokens: None };
    let mut asked = 0;
    let go_on = || {
        asked += 1;
        asked < 3
    };
    assert!(Generation::start(&mut engine, &sampler, request, &[], go_on).unwrap().is_none());
    assert_eq!(engine.len(sequence).unwrap(), 48);
}

#[test]
fn prompts_that_do_not_fit_are_refused() {
    let mut engine = engine(&windowed(), EngineOptions { context: 20, ..SIZES });
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let sequence = engine.add_sequence().unwrap();
    let prompt = tokens(21, 1);
    let request = Request { sequence, prompt: &prompt, stop: &[], max_tokens: None };
    let error = Generation::start(&mut engine, &sampler, request, &[], || true).err().unwrap();
    assert!(matches!(error, EngineError::ContextFull { held: 0, wanted: 21, context: 20 }), "{error}");
}
