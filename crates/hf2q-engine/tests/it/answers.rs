//! Whole answers: limits, stop tokens, cancelling.

use hf2q_engine::{Engine, EngineError, Finish, Generation, Request, Sampler, Sampling, SequenceId};

use crate::support::{OPTIONS, engine, text};

fn request<'a>(sequence: SequenceId, prompt: &'a [u32], stop: &'a [u32]) -> Request<'a> {
    Request { sequence, prompt, stop, max_tokens: None }
}

fn fresh() -> (Engine, SequenceId, Sampler) {
    let mut engine = engine(OPTIONS).unwrap();
    let sequence = engine.add_sequence().unwrap();
    (engine, sequence, Sampler::new(Sampling::default()).unwrap())
}

/// The tokens of an answer and why it ended.
fn answer(prompt: &[u32], stop: &[u32], max_tokens: Option<usize>) -> (Vec<u32>, Finish) {
    let (mut engine, sequence, sampler) = fresh();
    let request = Request { max_tokens, ..request(sequence, prompt, stop) };
    let mut generation = Generation::start(&mut engine, &sampler, request, &[], || true).unwrap().unwrap();
    let mut tokens = Vec::new();
    loop {
        match generation.next_token().unwrap() {
            Ok(token) => tokens.push(token),
            Err(finish) => return (tokens, finish),
        }
    }
}

#[test]
fn an_answer_ends_where_the_context_does() {
    let prompt = text(4, OPTIONS.context);
    let (one, finish) = answer(&prompt, &[], None);
    assert_eq!((one.len(), finish), (1, Finish::Length));
    let (more, finish) = answer(&prompt[..OPTIONS.context - 9], &[], None);
    assert_eq!((more.len(), finish), (10, Finish::Length));
    let (few, finish) = answer(&prompt[..OPTIONS.context - 9], &[], Some(4));
    assert_eq!((&few[..], finish), (&more[..4], Finish::Length));
    assert_eq!(answer(&prompt[..5], &[], Some(0)), (vec![], Finish::Length));
}

#[test]
fn a_stop_token_ends_an_answer_and_is_not_part_of_it() {
    let prompt = text(5, 60);
    let (tokens, _) = answer(&prompt, &[], Some(12));
    let stop = tokens[5];
    let at = tokens.iter().position(|&t| t == stop).unwrap();
    assert_eq!(answer(&prompt, &[stop], Some(12)), (tokens[..at].to_vec(), Finish::Stop(stop)));
}

#[test]
fn a_second_request_continues_the_first() {
    let prompt = text(6, 90);
    let whole = answer(&prompt, &[], Some(3));
    let (mut engine, sequence, sampler) = fresh();
    for part in [0..40, 40..90] {
        let request = Request { max_tokens: Some(3), ..request(sequence, &prompt[part.clone()], &[]) };
        let held = &prompt[..part.start];
        let mut generation =
            Generation::start(&mut engine, &sampler, request, held, || true).unwrap().unwrap();
        if part.end == prompt.len() {
            let tokens: Vec<u32> = (0..3).map(|_| generation.next_token().unwrap().unwrap()).collect();
            assert_eq!(tokens, whole.0);
        }
    }
}

#[test]
fn prompts_that_are_empty_or_too_long_are_refused() {
    let (mut engine, sequence, sampler) = fresh();
    let mut start = |prompt: &[u32]| {
        Generation::start(&mut engine, &sampler, request(sequence, prompt, &[]), &[], || true).map(|_| ())
    };
    assert!(matches!(start(&[]), Err(EngineError::EmptyPrompt)));
    let long = start(&text(1, OPTIONS.context + 1));
    assert!(matches!(long, Err(EngineError::ContextFull { held: 0, wanted: 201, context: 200 })));
}

#[test]
fn a_prompt_can_be_cancelled_between_chunks() {
    let (mut engine, sequence, sampler) = fresh();
    let prompt = text(7, 150);
    let generation =
        Generation::start(&mut engine, &sampler, request(sequence, &prompt, &[]), &[], || false).unwrap();
    assert!(generation.is_none());
    assert_eq!(engine.len(sequence).unwrap(), OPTIONS.rows);
}
