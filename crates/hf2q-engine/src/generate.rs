//! One answer: prompt in, tokens out one by one.

use crate::engine::{Engine, LogitRows, SequenceId, Work};
use crate::error::EngineError;
use crate::sample::Sampler;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The sequence to continue.
    pub sequence: SequenceId,
    /// Tokens to append before the first one is drawn; at least one.
    pub prompt: &'a [u32],
    /// Tokens that end the answer; they are not part of it.
    pub stop: &'a [u32],
    /// Most tokens to draw; `None`: until the context is full.
    pub max_tokens: Option<usize>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token was drawn.
    Stop(u32),
    /// `max_tokens` were drawn, or the context is full.
    Length,
    /// Its constraint allows nothing more, or the vector of its prompt is there.
    Complete,
    /// Its deadline has passed.
    Deadline,
    /// The caller ended it.
    Cancelled,
}

/// An answer in progress. Every call of [`Generation::next_token`] computes one step.
pub struct Generation<'e> {
    engine: &'e mut Engine,
    sampler: &'e Sampler,
    sequence: SequenceId,
    stop: Vec<u32>,
    left: usize,
    /// Tokens the sequence holds, and the ones drawn.
    history: Vec<u32>,
    pending: Option<u32>,
    non_finite: usize,
}

impl<'e> Generation<'e> {
    /// Computes the prompt. `held` are the tokens that the sequence holds already (penalties look at them).
    /// `go_on` is asked between chunks; `None` is returned where it says no.
    pub fn start(
        engine: &'e mut Engine,
        sampler: &'e Sampler,
        request: Request<'_>,
        held: &[u32],
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Self>, EngineError> {
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let room = engine.options().context - engine.len(request.sequence)?;
        if request.prompt.len() > room {
            let (wanted, context) = (request.prompt.len(), engine.options().context);
            return Err(EngineError::ContextFull { held: context - room, wanted, context });
        }
        let mut history = held.to_vec();
        history.extend_from_slice(request.prompt);
        let mut drawn = None;
        let mut cancelled = false;
        engine.extend(request.sequence, request.prompt, LogitRows::Last, |logits| {
            if !logits.is_empty() {
                drawn = Some(sampler.sample(logits, &history, request.sequence.index()));
                return true;
            }
            cancelled = !go_on();
            !cancelled
        })?;
        // Another answer to the same prompt starts here.
        engine.remember(request.sequence)?;
        let Some(drawn) = drawn.filter(|_| !cancelled) else { return Ok(None) };
        let drawn = drawn?;
        // The last drawn token is never stored, so one more than the room left can be drawn.
        let left = request.max_tokens.unwrap_or(usize::MAX).min(room - request.prompt.len() + 1);
        let stop = request.stop.to_vec();
        let (pending, non_finite) = (Some(drawn.token), drawn.non_finite);
        Ok(Some(Self {
            engine,
            sampler,
            sequence: request.sequence,
            stop,
            left,
            history,
            pending,
            non_finite,
        }))
    }

    /// The next token of the answer, or why it ended.
    pub fn next_token(&mut self) -> Result<Result<u32, Finish>, EngineError> {
        if self.left == 0 {
            return Ok(Err(Finish::Length));
        }
        let token = match self.pending.take() {
            Some(token) => token,
            None => self.draw()?,
        };
        if self.stop.contains(&token) {
            self.left = 0;
            return Ok(Err(Finish::Stop(token)));
        }
        self.left -= 1;
        self.history.push(token);
        Ok(Ok(token))
    }

    /// Logits that were NaN or infinite so far; they are never drawn.
    pub fn non_finite(&self) -> usize {
        self.non_finite
    }

    fn draw(&mut self) -> Result<u32, EngineError> {
        let last = *self.history.last().expect("a prompt is never empty");
        let logits = self.engine.step(&[Work::new(self.sequence, &[last], LogitRows::Last)], None)?;
        let drawn = self.sampler.sample(logits, &self.history, self.sequence.index())?;
        self.non_finite += drawn.non_finite;
        Ok(drawn.token)
    }
}
