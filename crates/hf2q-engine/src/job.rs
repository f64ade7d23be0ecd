//! What a scheduler is asked for, and what it tells of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::constraint::Constraint;
use crate::error::EngineError;
use crate::logprobs::Logprobs;
use crate::sample::Sampler;

/// Something to compute for a prompt.
pub struct Job {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// What is wanted.
    pub task: Task,
    /// When it ends as [`Finish::Deadline`], whatever it has by then.
    pub deadline: Option<Instant>,
}

/// What is wanted of a prompt.
pub enum Task {
    /// Tokens that follow.
    Answer(Box<Answer>),
    /// One vector for the whole prompt.
    Embed(Pooling),
}

/// How tokens are drawn, and until when.
pub struct Answer {
    /// Draws the tokens; its seed is part of their key.
    pub sampler: Sampler,
    /// The other part of the key, beside the position: the index of the choice among several answers to one prompt.
    /// Answers of equal (prompt, sampler, draws, constraint) are equal, whatever else is computed.
    pub draws: u64,
    /// Tokens that end the answer; they are not part of it.
    pub stop: Vec<u32>,
    /// Most tokens to draw; `None`: until the context is full.
    pub max_tokens: Option<usize>,
    /// Whether tokens come with their logarithmic probability, and with those of how many of the most likely ones.
    pub logprobs: Option<usize>,
    /// The same for the tokens of the prompt, which is then computed whole: what caches hold of it is not used.
    pub prompt_logprobs: Option<usize>,
    /// What the answer may contain.
    pub constraint: Option<Box<dyn Constraint>>,
}

impl Answer {
    /// An answer without constraint, stop tokens, limit or probabilities, the first of its prompt.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler,
            draws: 0,
            stop: Vec::new(),
            max_tokens: None,
            logprobs: None,
            prompt_logprobs: None,
            constraint: None,
        }
    }
}

/// How hidden states of a prompt (behind the last norm) become one vector, which is then scaled to length 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean. The prompt is computed whole: what caches hold of it is not used.
    Mean,
    /// That of the last token.
    Last,
}

/// What happens to a job, in this order: `Started`, then `Prompt` and `Token` or `Embedding`, then one of `Finished` and
/// `Failed`, which is always the last and always comes, also for jobs that were cancelled or never started.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first rows of the prompt are about to be computed. A job that is preempted does not start again.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Those of them that the caches held.
        cached_tokens: usize,
    },
    /// Probabilities of the next tokens of the prompt, each after those before it: the first is that of its second token.
    Prompt(Vec<Logprobs>),
    /// A token of the answer.
    Token {
        /// Its id.
        id: u32,
        /// If they were asked for.
        logprobs: Option<Logprobs>,
    },
    /// The vector of the prompt, of length 1.
    Embedding(Vec<f32>),
    /// The job has ended.
    Finished {
        /// Why.
        reason: Finish,
        /// What it took.
        usage: Usage,
        /// How long.
        times: Times,
        /// What drafts did for it.
        drafts: DraftUse,
    },
    /// The job could not be computed. Others share the error where one step failed for all.
    Failed(Arc<EngineError>),
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

/// Gets the events of a job, on the engine's thread: it must not wait for anything. `false` ends the job at once; no other
/// token is drawn or computed for it, and [`Event::Finished`] with [`Finish::Cancelled`] follows. What it returns for the
/// last event does not matter.
pub type Sink = Box<dyn FnMut(Event) -> bool + Send>;

/// Tokens of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that the caches held when the job started.
    pub cached_tokens: usize,
    /// Tokens that were given to the sink: also the last ones of an answer that the sink ended, not a stop token.
    pub answer_tokens: usize,
    /// Tokens that were computed again because the job was preempted; they count nowhere else.
    pub recomputed_tokens: usize,
    /// Tokens that a drafter guessed, and those of them that were drawn; [`Usage::answer_tokens`] counts the latter as well.
    pub drafted_tokens: usize,
    /// See [`Usage::drafted_tokens`].
    pub accepted_tokens: usize,
    /// Logits that were NaN or infinite; they are never drawn.
    pub non_finite: usize,
}

/// What drafts did for one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftUse {
    /// Steps that gave it tokens; without drafts each gives one. That in which a stop token alone is drawn is none.
    pub steps: usize,
    /// By level, the first one first: drafts that had it, and those of them whose token there was drawn. A draft with alternatives
    /// has the levels of its longest line that begins with what was drawn.
    pub levels: Vec<(u64, u64)>,
    /// Seconds that drafts saved, below 0 where they cost more: each step with a draft against as many steps without one as it
    /// gave tokens, less what the drafter took for it, and less what it took in steps without a draft. Steps count with what such
    /// steps take at present, by the middle of the latest. Those with drafts that had a prompt's rows too, or for whose rows the
    /// time without drafts is not measured, are left out with all that the drafter took for them. `None`: no other step had a
    /// draft.
    pub saved: Option<f64>,
}

impl DraftUse {
    /// Adds a draft of `depth` levels, of which `accepted` were right.
    pub(crate) fn record(levels: &mut Vec<(u64, u64)>, depth: usize, accepted: usize) {
        if levels.len() < depth {
            levels.resize(depth, (0, 0));
        }
        for (level, (had, right)) in levels.iter_mut().enumerate().take(depth) {
            *had += 1;
            *right += u64::from(level < accepted);
        }
    }
}

/// How long a job took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From its submission until its first row was about to be computed.
    pub queued: Duration,
    /// From there until its first token or vector, or until it ended.
    pub prompt: Duration,
    /// From there until it ended.
    pub answer: Duration,
}
