//! One answer twice, without drafts and with them: some tokens of one, then those of the other.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use anyhow::{Result, bail};
use hf2q_engine::{DraftUse, Event, Sampler, Usage};

use crate::interrupt;
use crate::session::Session;

/// Tokens after which it is the other one's turn.
pub(super) const TURN: usize = 32;

/// What one side did in its turn, or in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Piece {
    pub(super) tokens: usize,
    pub(super) seconds: f64,
}

impl Piece {
    /// Tokens a second.
    pub(super) fn rate(self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }

    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
    }
}

/// An answer as it was measured.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// By turn, how many times as fast the same place of the answer was with drafts.
    pub(super) ratios: Vec<f64>,
    /// All turns: without drafts and with them. The first token is not in them: it comes with the prompt.
    pub(super) plain: Piece,
    pub(super) drafted: Piece,
    /// Tokens, and what drafts did.
    pub(super) usage: Usage,
    pub(super) drafts: DraftUse,
}

/// An answer under way in a session of its own.
pub(super) struct Side<'s> {
    session: &'s mut Session,
    events: Receiver<Event>,
    tokens: Vec<u32>,
    end: Option<(Usage, DraftUse)>,
}

impl<'s> Side<'s> {
    /// Computes the prompt and the first token.
    pub(super) fn begin(
        session: &'s mut Session,
        prompt: &[u32],
        (sampler, most): (&Sampler, usize),
    ) -> Result<Self> {
        let (_, events) = session.begin(prompt, sampler, Some(most))?;
        let mut side = Self { session, events, tokens: Vec::new(), end: None };
        side.until(1)?;
        Ok(side)
    }

    /// Goes on until there are so many tokens, or the answer has ended.
    fn until(&mut self, tokens: usize) -> Result<Piece> {
        let (before, began) = (self.tokens.len(), Instant::now());
        while self.tokens.len() < tokens && self.end.is_none() {
            self.session.step();
            if interrupt::pressed() {
                bail!("stopped");
            }
            for event in self.events.try_iter() {
                match event {
                    Event::Token { id, .. } => self.tokens.push(id),
                    Event::Finished { usage, drafts, .. } => self.end = Some((usage, drafts)),
                    Event::Failed(error) => return Err(error.into()),
                    Event::Started { .. } | Event::Prompt(_) | Event::Embedding(_) => {}
                }
            }
        }
        Ok(Piece { tokens: self.tokens.len() - before, seconds: began.elapsed().as_secs_f64() })
    }
}

/// Both to their end, the one that begins a turn being the one that ended the turn before.
pub(super) fn take((mut plain, mut drafted): (Side<'_>, Side<'_>), mut plain_first: bool) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    while plain.end.is_none() || drafted.end.is_none() {
        // A step with drafts can go beyond the end of its turn.
        let to = plain.tokens.len().max(drafted.tokens.len()) + TURN;
        let (without, with) = if plain_first {
            let without = plain.until(to)?;
            (without, drafted.until(to)?)
        } else {
            let with = drafted.until(to)?;
            (plain.until(to)?, with)
        };
        plain_first = !plain_first;
        pairs.plain.add(without);
        pairs.drafted.add(with);
        // The rest of an answer may be too short to say anything.
        if without.tokens.min(with.tokens) >= TURN / 2 {
            pairs.ratios.push(with.rate() / without.rate());
        }
    }
    if plain.tokens != drafted.tokens {
        bail!("the answers differ with and without drafts: this is a defect");
    }
    if plain.tokens.len() < 2 {
        bail!("the answer to --text has no two tokens; ask for something longer");
    }
    (pairs.usage, pairs.drafts) = drafted.end.unwrap_or_default();
    Ok(pairs)
}
