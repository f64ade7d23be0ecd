//! One job on its way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::JobId;
use crate::constraint::ConstraintError;
use crate::draft::DraftRequest;
use crate::draft::control::JobControl;
use crate::draft::outcome::Outcome;
use crate::engine::LogitRows;
use crate::error::EngineError;
use crate::job::{Answer, DraftUse, Event, Finish, Job, Pooling, Sink, Task, Times, Usage};
use crate::logprobs::Logprobs;

/// What a job has got and still needs. Where its rows are stored is not part of it: a job that loses them goes on from its
/// history.
pub(super) struct Active {
    pub(super) id: JobId,
    pub(super) deadline: Option<Instant>,
    /// The prompt and what was drawn.
    pub(super) history: Vec<u32>,
    /// Tokens of the prompt.
    prompt: usize,
    work: Work,
    sink: Sink,
    /// What is known of its drafts.
    pub(super) control: JobControl,
    /// Tokens that may still be drawn.
    left: usize,
    /// Positions that were computed at some time.
    reached: usize,
    usage: Usage,
    drafts: DraftUse,
    /// What the drafter took in steps without a draft of it.
    overhead: f64,
    submitted: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    /// Whether the sink has had its last event.
    over: bool,
}

enum Work {
    Answer {
        answer: Box<Answer>,
        /// Tokens of the prompt whose probabilities were given to the sink, the first one included, which has none.
        told: usize,
    },
    Embed {
        pooling: Pooling,
        sum: Vec<f64>,
    },
}

/// The rows of a step that belong to one job.
pub(super) struct Computed<'a> {
    /// Position of the first row.
    pub(super) from: usize,
    /// Rows.
    pub(super) count: usize,
    /// `[L, vocabulary]`, for those rows that [`Active::logits`] asked for.
    pub(super) logits: &'a [f32],
    /// `[L, width]`: hidden states of the same rows; empty unless [`Active::embeds`].
    pub(super) hidden: &'a [f32],
    /// Size of the vocabulary.
    pub(super) vocabulary: usize,
}

impl Active {
    /// `capacity` is how many tokens a job can hold.
    pub(super) fn new(id: JobId, job: Job, sink: Sink, (capacity, now): (usize, Instant)) -> Self {
        let prompt = job.prompt.len();
        // The last drawn token is never stored, so one more than the room left can be drawn.
        let room = capacity.saturating_sub(prompt) + 1;
        let (work, left) = match job.task {
            Task::Answer(answer) => {
                let left = answer.max_tokens.unwrap_or(usize::MAX).min(room);
                (Work::Answer { answer, told: 1 }, left)
            }
            Task::Embed(pooling) => (Work::Embed { pooling, sum: Vec::new() }, 0),
        };
        let usage = Usage { prompt_tokens: prompt, ..Usage::default() };
        Self {
            id,
            deadline: job.deadline,
            history: job.prompt,
            prompt,
            work,
            sink,
            control: JobControl::new(),
            left,
            reached: 0,
            usage,
            drafts: DraftUse::default(),
            overhead: 0.0,
            submitted: now,
            started: None,
            first: None,
            over: false,
        }
    }

    /// Whether it has had rows before.
    pub(super) fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// The prompt.
    pub(super) fn prompt(&self) -> &[u32] {
        &self.history[..self.prompt]
    }

    /// Whether every row of the prompt is looked at, so that what caches hold is of no use.
    pub(super) fn wants_all(&self) -> bool {
        match &self.work {
            Work::Answer { answer, told } => answer.prompt_logprobs.is_some() && *told < self.prompt,
            Work::Embed { pooling, .. } => *pooling == Pooling::Mean,
        }
    }

    /// Whether hidden states are looked at.
    pub(super) fn embeds(&self) -> bool {
        matches!(self.work, Work::Embed { .. })
    }

    /// Whether it draws tokens.
    pub(super) fn draws(&self) -> bool {
        matches!(self.work, Work::Answer { .. })
    }

    /// How many tokens may be drawn behind the next one.
    pub(super) fn draft_levels(&self) -> usize {
        if self.draws() { self.left.saturating_sub(1) } else { 0 }
    }

    /// What a drafter is asked for.
    pub(super) fn draft_request(
        &self,
        (depth, room): (usize, usize),
        branches: bool,
    ) -> Option<DraftRequest<'_>> {
        let Work::Answer { answer, .. } = &self.work else { return None };
        let (history, sampler, draws) = (&self.history[..], &answer.sampler, answer.draws);
        Some(DraftRequest { job: self.id, history, sampler, draws, room, depth, branches })
    }

    /// A draft of so many tokens was computed.
    pub(super) fn count_draft(&mut self, drafted: usize, outcome: &Outcome) {
        self.usage.drafted_tokens += drafted;
        self.usage.accepted_tokens += outcome.accepted;
        DraftUse::record(&mut self.drafts.levels, outcome.depth, outcome.accepted);
    }

    /// What a step saved; `None`: it had no draft, and this is what the drafter took.
    pub(super) fn count_saved(&mut self, saved: Option<f64>, overhead: f64) {
        match saved {
            Some(saved) => self.drafts.saved = Some(self.drafts.saved.unwrap_or(0.0) + saved),
            None => self.overhead += overhead,
        }
    }

    /// A step has given tokens to the sink.
    pub(super) fn count_step(&mut self) {
        self.drafts.steps += 1;
    }

    /// Which logits a step with the rows up to `to` needs.
    pub(super) fn logits(&self, to: usize) -> LogitRows {
        if self.wants_all() {
            LogitRows::All
        } else if to == self.history.len() {
            LogitRows::Last
        } else {
            LogitRows::None
        }
    }

    /// Its rows are about to be computed, but for those of `cached` tokens.
    pub(super) fn start(&mut self, cached: usize, now: Instant) -> bool {
        if let Work::Embed { sum, .. } = &mut self.work {
            sum.clear();
        }
        if self.started.is_some() {
            return true;
        }
        self.started = Some(now);
        self.usage.cached_tokens = cached;
        self.tell(Event::Started { prompt_tokens: self.prompt, cached_tokens: cached })
    }

    /// Takes what a step has computed; how the job ended, if it did. A panic of its constraint is its own.
    pub(super) fn advance(&mut self, computed: &Computed<'_>) -> Result<Option<Finish>, EngineError> {
        let advanced = catch_unwind(AssertUnwindSafe(|| self.take(computed)));
        advanced.unwrap_or_else(|panic| Err(EngineError::panicked(&*panic)))
    }

    /// The last drawn token was guessed and is computed already: takes its logits as [`Active::advance`] would.
    pub(super) fn advance_drafted(&mut self, logits: &[f32]) -> Result<Option<Finish>, EngineError> {
        let to = self.history.len();
        self.reached = self.reached.max(to);
        let drawn = catch_unwind(AssertUnwindSafe(|| self.draw(logits)));
        drawn.unwrap_or_else(|panic| Err(EngineError::panicked(&*panic)))
    }

    fn take(&mut self, computed: &Computed<'_>) -> Result<Option<Finish>, EngineError> {
        let to = computed.from + computed.count;
        self.usage.recomputed_tokens += to.min(self.reached).saturating_sub(computed.from);
        self.reached = self.reached.max(to);
        if self.embeds() {
            return self.pool(computed);
        }
        if !self.tell_prompt(computed) {
            return Ok(Some(Finish::Cancelled));
        }
        if to < self.history.len() {
            return Ok(None);
        }
        let last = computed.logits.len().saturating_sub(computed.vocabulary);
        self.draw(&computed.logits[last..])
    }

    /// The job ends for a reason; how long it ran, and the seconds that drafts saved where that is known.
    pub(super) fn finish(mut self, reason: Finish) -> (Duration, Option<f64>) {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let first = self.first.unwrap_or(now);
        let times = Times { queued: started - self.submitted, prompt: first - started, answer: now - first };
        let mut drafts = std::mem::take(&mut self.drafts);
        let saved = drafts.saved.map(|saved| saved - self.overhead);
        drafts.saved = saved;
        self.tell(Event::Finished { reason, usage: self.usage, times, drafts });
        (now - started, saved)
    }

    /// The job ends with an error.
    pub(super) fn fail(mut self, error: Arc<EngineError>) {
        self.tell(Event::Failed(error));
    }

    fn draw(&mut self, logits: &[f32]) -> Result<Option<Finish>, EngineError> {
        let Work::Answer { answer, .. } = &mut self.work else { return Ok(None) };
        if self.left == 0 {
            return Ok(Some(Finish::Length));
        }
        if answer.constraint.as_ref().is_some_and(|c| c.is_finished()) {
            return Ok(Some(Finish::Complete));
        }
        let allowed = match &mut answer.constraint {
            Some(constraint) => constraint.allowed()?,
            None => None,
        };
        if allowed.is_some_and(crate::TokenSet::is_empty) {
            let drawn = self.history.len() - self.prompt;
            return Err(ConstraintError::DeadEnd { drawn }.into());
        }
        let drawn = answer.sampler.sample_allowed(logits, &self.history, answer.draws, allowed)?;
        self.usage.non_finite += drawn.non_finite;
        self.first.get_or_insert_with(Instant::now);
        let id = drawn.token;
        if answer.stop.contains(&id) {
            return Ok(Some(Finish::Stop(id)));
        }
        if let Some(constraint) = &mut answer.constraint {
            constraint.push(id)?;
        }
        let complete = answer.constraint.as_ref().is_some_and(|c| c.is_finished());
        let logprobs = answer.logprobs.map(|top| Logprobs::new(logits, id, top));
        self.history.push(id);
        self.usage.answer_tokens += 1;
        self.left -= 1;
        Ok(match self.tell(Event::Token { id, logprobs }) {
            false => Some(Finish::Cancelled),
            true if complete => Some(Finish::Complete),
            true => (self.left == 0).then_some(Finish::Length),
        })
    }

    /// Gives the sink the probabilities of the prompt's tokens that follow the computed rows.
    fn tell_prompt(&mut self, computed: &Computed<'_>) -> bool {
        if !self.wants_all() {
            return true;
        }
        let Work::Answer { answer, told } = &mut self.work else { return true };
        let top = answer.prompt_logprobs.unwrap_or(0);
        let mut probabilities = Vec::new();
        for (next, row) in (computed.from + 1..self.prompt).zip(computed.logits.chunks(computed.vocabulary)) {
            if next == *told {
                probabilities.push(Logprobs::new(row, self.history[next], top));
                *told += 1;
            }
        }
        probabilities.is_empty() || self.tell(Event::Prompt(probabilities))
    }

    fn pool(&mut self, computed: &Computed<'_>) -> Result<Option<Finish>, EngineError> {
        let Work::Embed { sum, .. } = &mut self.work else { return Ok(None) };
        let rows = computed.logits.len() / computed.vocabulary;
        let width = computed.hidden.len().checked_div(rows).unwrap_or(0);
        for row in computed.hidden.chunks_exact(width.max(1)) {
            sum.resize(width, 0.0);
            sum.iter_mut().zip(row).for_each(|(s, &x)| *s += f64::from(x));
        }
        if computed.from + computed.count < self.history.len() {
            return Ok(None);
        }
        let length = sum.iter().map(|s| s * s).sum::<f64>().sqrt();
        if !length.is_normal() {
            return Err(EngineError::NoVector);
        }
        let vector = sum.iter().map(|s| (s / length) as f32).collect();
        self.first = Some(Instant::now());
        let go_on = self.tell(Event::Embedding(vector));
        Ok(Some(if go_on { Finish::Complete } else { Finish::Cancelled }))
    }

    /// Tokens that were given to the sink.
    pub(super) fn answer_tokens(&self) -> usize {
        self.usage.answer_tokens
    }

    /// A sink that panics is done.
    fn tell(&mut self, event: Event) -> bool {
        self.over = matches!(event, Event::Finished { .. } | Event::Failed(_));
        catch_unwind(AssertUnwindSafe(|| (self.sink)(event))).unwrap_or(false)
    }
}

impl Drop for Active {
    /// A job is dropped before its end only where a panic unwinds. What others have put in may panic as it goes, which is no
    /// other job's concern.
    fn drop(&mut self) {
        if !self.over {
            let why = "the job was lost".to_owned();
            self.tell(Event::Failed(Arc::new(EngineError::Panicked { why })));
        }
        let sink = std::mem::replace(&mut self.sink, Box::new(|_| false));
        let _ = catch_unwind(AssertUnwindSafe(move || drop(sink)));
        if let Work::Answer { answer, .. } = &mut self.work {
            let constraint = answer.constraint.take();
            let _ = catch_unwind(AssertUnwindSafe(move || drop(constraint)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What a prompt of one token becomes whose hidden state is this.
    fn embed(hidden: &[f32]) -> (Result<Option<Finish>, EngineError>, usize) {
        let events = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&events);
        let sink = Box::new(move |_| {
            *seen.lock().unwrap() += 1;
            true
        });
        let job = Job { prompt: vec![3], task: Task::Embed(Pooling::Last), deadline: None };
        let mut active = Active::new(JobId(0), job, sink, (10, Instant::now()));
        let computed = Computed { from: 0, count: 1, logits: &[0.0; 5], hidden, vocabulary: 5 };
        let end = active.advance(&computed);
        let told = *events.lock().unwrap();
        (end, told)
    }

    #[test]
    fn hidden_states_without_a_direction_are_an_error() {
        assert!(matches!(embed(&[3.0, f32::MAX]), (Ok(Some(Finish::Complete)), 1)));
        for hidden in [&[1.0, f32::NAN][..], &[f32::NEG_INFINITY, 0.0], &[0.0, -0.0], &[]] {
            let (end, told) = embed(hidden);
            assert!(matches!(end, Err(EngineError::NoVector)) && told == 0, "{hidden:?}: {end:?}");
        }
    }
}
