//! From tokens to text, on the engine's thread: an answer ends with the very token that completes a stop string, however slow
//! the network is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use hf2q_engine::{DraftUse, EngineError, Event, Finish, Logprobs, Usage};
use hf2q_text::answer::{AnswerParser, Delta};
use hf2q_text::{StopStrings, Tokenizer, Utf8Stream};
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// What the HTTP side gets of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// The prompt is about to be computed.
    Started { cached_tokens: usize },
    /// Probabilities of the prompt's tokens from the second one on.
    Prompt(Vec<Logprobs>),
    /// Text that is certain, and the tokens that are shown with it; either may be empty.
    Text(Text),
    /// The vector of a prompt.
    Embedding(Vec<f32>),
    /// The last piece. Some of the answer's tokens were those of thoughts.
    End { end: End, usage: Usage, thought: usize, drafts: DraftUse },
}

/// Text that became certain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub(crate) deltas: Vec<Delta>,
    /// Only where probabilities were asked for.
    pub(crate) tokens: Vec<Shown>,
}

/// A token of the answer with its probabilities.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) id: u32,
    pub(crate) logprobs: Logprobs,
    /// Bytes and characters of the answer's text before the token.
    pub(crate) start: usize,
    pub(crate) offset: usize,
}

/// Why an answer ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The model ended it.
    Stop,
    /// One of the request's stop strings was found.
    StopString(String),
    /// The limit of tokens, or the context.
    Length,
    /// The request's time is over.
    Deadline,
    /// The server is stopping.
    Cancelled,
    /// The engine failed.
    Failed(Arc<EngineError>),
}

/// How tokens become text.
pub(crate) enum Reader {
    /// All of them are text but control tokens.
    Plain(Utf8Stream),
    /// Thoughts and calls are told apart.
    Answer(Box<AnswerParser>),
    /// The answer has ended.
    Ended,
}

impl Reader {
    /// For texts that are continued.
    pub(crate) fn plain() -> Self {
        Self::Plain(Utf8Stream::default())
    }

    fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Vec<Delta> {
        match self {
            Self::Plain(_) if tokenizer.is_control(id) => Vec::new(),
            Self::Plain(utf8) => {
                let mut text = String::new();
                utf8.push(tokenizer.token_bytes(id), &mut text);
                vec![Delta::Content(text)]
            }
            Self::Answer(parser) => parser.push(tokenizer, id),
            Self::Ended => Vec::new(),
        }
    }

    fn in_thought(&self) -> bool {
        matches!(self, Self::Answer(parser) if parser.in_thought())
    }

    fn finish(&mut self) -> Vec<Delta> {
        match std::mem::replace(self, Self::Ended) {
            Self::Plain(utf8) => vec![Delta::Content(utf8.finish().to_owned())],
            Self::Answer(parser) => parser.finish(),
            Self::Ended => Vec::new(),
        }
    }
}

/// What is special about one answer.
pub(crate) struct Wanted {
    pub(crate) stops: Vec<String>,
    pub(crate) reader: Reader,
}

/// Makes pieces of one job's events and sends them on. It never waits: a reader for whom too much has piled up loses the
/// answer.
pub(crate) struct Tap {
    choice: usize,
    sender: mpsc::Sender<(usize, Piece)>,
    tokenizer: Arc<Tokenizer>,
    reader: Reader,
    stops: StopStrings,
    /// Tokens whose text is not certain yet, and where it ends.
    held: VecDeque<(Shown, usize)>,
    /// Bytes of content before stop strings are cut, and of content that was sent.
    produced: usize,
    sent: usize,
    characters: usize,
    usage: Usage,
    drafts: DraftUse,
    /// Tokens of thoughts.
    thought: usize,
    metrics: Arc<Metrics>,
    started: Instant,
    last_token: Option<Instant>,
}

impl Tap {
    pub(crate) fn new(
        choice: usize,
        sender: mpsc::Sender<(usize, Piece)>,
        tokenizer: Arc<Tokenizer>,
        wanted: Wanted,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            choice,
            sender,
            tokenizer,
            reader: wanted.reader,
            stops: StopStrings::new(wanted.stops),
            held: VecDeque::new(),
            produced: 0,
            sent: 0,
            characters: 0,
            usage: Usage::default(),
            drafts: DraftUse::default(),
            thought: 0,
            metrics,
            started: Instant::now(),
            last_token: None,
        }
    }

    /// Takes an event; `false`: nothing more is wanted.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        match event {
            Event::Started { cached_tokens, .. } => self.send(Piece::Started { cached_tokens }),
            Event::Prompt(logprobs) => self.send(Piece::Prompt(logprobs)),
            Event::Embedding(vector) => self.send(Piece::Embedding(vector)),
            Event::Token { id, logprobs } => self.token(id, logprobs),
            Event::Finished { reason, usage, drafts, .. } => {
                self.drafts = drafts;
                self.usage = usage;
                self.finish(reason);
                false
            }
            Event::Failed(error) => {
                self.end(End::Failed(error));
                false
            }
        }
    }

    fn end(&mut self, end: End) {
        let drafts = std::mem::take(&mut self.drafts);
        self.send(Piece::End { end, usage: self.usage, thought: self.thought, drafts });
    }

    fn send(&self, piece: Piece) -> bool {
        self.sender.try_send((self.choice, piece)).is_ok()
    }

    fn token(&mut self, id: u32, logprobs: Option<Logprobs>) -> bool {
        self.time();
        let (start, offset) = (self.produced, self.characters);
        let deltas = self.reader.push(&self.tokenizer, id);
        self.thought += usize::from(self.reader.in_thought());
        let shown = self.show(deltas);
        if let Some(logprobs) = logprobs {
            self.held.push_back((Shown { id, logprobs, start, offset }, self.produced));
        }
        let sent = self.release(shown);
        sent && !self.stops.is_stopped()
    }

    /// Cuts content at stop strings. Nothing follows one, and what is held back comes before what is no content.
    fn show(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let mut shown = Vec::with_capacity(deltas.len());
        for delta in deltas {
            if self.stops.is_stopped() {
                break;
            }
            let text = match &delta {
                Delta::Content(text) => {
                    self.produced += text.len();
                    self.characters += text.chars().count();
                    self.stops.push(text)
                }
                _ => self.stops.finish(),
            };
            self.sent += text.len();
            if !text.is_empty() {
                shown.push(Delta::Content(text));
            }
            if !matches!(delta, Delta::Content(_)) {
                shown.push(delta);
            }
        }
        shown
    }

    /// Sends what is certain with the tokens that are wholly in it.
    fn release(&mut self, deltas: Vec<Delta>) -> bool {
        let mut tokens = Vec::new();
        while self.held.front().is_some_and(|(_, end)| *end <= self.sent) {
            tokens.extend(self.held.pop_front().map(|(shown, _)| shown));
        }
        if deltas.is_empty() && tokens.is_empty() {
            return !self.sender.is_closed();
        }
        self.send(Piece::Text(Text { deltas, tokens }))
    }

    fn finish(&mut self, reason: Finish) {
        if !self.stops.is_stopped() {
            let rest = self.reader.finish();
            let mut shown = self.show(rest);
            let text = self.stops.finish();
            if !self.stops.is_stopped() && !text.is_empty() {
                self.sent += text.len();
                shown.push(Delta::Content(text));
            }
            self.release(shown);
        }
        // Of a token that a stop string cuts, some text was sent.
        let cut = self.held.drain(..).filter(|(shown, _)| shown.start < self.sent);
        let tokens: Vec<Shown> = cut.map(|(shown, _)| shown).collect();
        if !tokens.is_empty() {
            self.send(Piece::Text(Text { deltas: Vec::new(), tokens }));
        }
        // What completes a stop string while the answer ends is a stop string all the same.
        let end = match (self.stops.found(), reason) {
            (Some(stop), _) => End::StopString(stop.to_owned()),
            (None, Finish::Stop(_) | Finish::Complete) => End::Stop,
            (None, Finish::Length) => End::Length,
            (None, Finish::Deadline) => End::Deadline,
            (None, Finish::Cancelled) => End::Cancelled,
        };
        self.end(end);
    }

    fn time(&mut self) {
        let now = Instant::now();
        match self.last_token {
            None => self.metrics.first_token.record((now - self.started).as_secs_f64()),
            Some(last) => self.metrics.next_token.record((now - last).as_secs_f64()),
        }
        self.last_token = Some(now);
    }
}
