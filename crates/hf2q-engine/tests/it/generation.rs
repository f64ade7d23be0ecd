//! Answers, token by token.

use hf2q_engine::{EngineOptions, Finish, Sampling};

use crate::support::{SIZES, answer, engine, scheduler, tokens, windowed};

/// Tokens and end of an answer to a prompt of 30 tokens.
fn fresh(
    sampling: Sampling,
    options: EngineOptions,
    stop: &[u32],
    max_tokens: Option<usize>,
) -> (Vec<u32>, Finish) {
    let mut scheduler = scheduler(engine(&windowed(), options));
    answer(&mut scheduler, &tokens(30, 1), sampling, (stop, max_tokens))
}

#[test]
fn the_chunk_does_not_change_a_drawn_answer() {
    let warm = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let with = |rows| fresh(warm.clone(), EngineOptions { rows, logit_rows: 1, ..SIZES }, &[], Some(20));
    let (drawn, finish) = with(48);
    assert_eq!((drawn.len(), finish), (20, Finish::Length));
    assert_eq!(with(1).0, drawn);
    assert_eq!(with(7).0, drawn);
}

#[test]
fn a_stop_token_ends_the_answer_and_is_not_part_of_it() {
    let (drawn, _) = fresh(Sampling::default(), SIZES, &[], Some(12));
    let stop = drawn[5];
    let first = drawn.iter().position(|&t| t == stop).unwrap();
    let (cut, finish) = fresh(Sampling::default(), SIZES, &[stop], Some(12));
    assert_eq!((cut.as_slice(), finish), (&drawn[..first], Finish::Stop(stop)));
}

#[test]
fn a_full_context_ends_the_answer() {
    let (drawn, finish) = fresh(Sampling::default(), EngineOptions { context: 40, ..SIZES }, &[], None);
    // Ten places are left after the prompt, and the last token drawn needs none.
    assert_eq!((drawn.len(), finish), (11, Finish::Length));
}

#[test]
fn no_tokens_are_drawn_if_none_are_wanted() {
    assert_eq!(fresh(Sampling::default(), SIZES, &[], Some(0)), (Vec::new(), Finish::Length));
}
