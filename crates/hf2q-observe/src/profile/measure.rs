//! Runs a prompt and a decode with times, and the same without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hf2q_engine::{Engine, LogitRows, SequenceId, Work};
use hf2q_plan::{Observer, Plan, Roofline, StepSize};

use super::{Phase, PhaseProfile, Profile, Profiler};
use crate::error::ObserveError;

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a prompt; 0 leaves the phase out.
    pub prompt: usize,
    /// Tokens that are read one by one; 0 leaves the phase out.
    pub decode: usize,
    /// Tokens that are there before either.
    pub depth: usize,
}

impl Workload {
    /// Tokens that the context must hold.
    pub fn context(self) -> usize {
        // A step warms up; then each is run without and with times.
        self.depth + self.prompt.max(2 * self.decode + 1)
    }
}

/// Ids that look drawn at random and are the same in every run. One id again and again would route all rows to the
/// same few experts.
pub fn scattered_tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX).max(1);
    // Knuth's multiplicative hash; its high bits are the good ones.
    (0..count).map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 8) % vocabulary).collect()
}

/// Measures both phases on an engine of `plan`, each step without and with times. `go_on` is asked before each step; `None`
/// if it said no.
///
/// # Errors
/// The work does not fit the engine's context, or the backend fails.
pub fn profile(
    engine: &mut Engine,
    (plan, roofline): (Arc<Plan>, Roofline),
    work: Workload,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Profile>, ObserveError> {
    let mut runner = Runner { profiler: Profiler::new(plan, roofline), engine, go_on, stopped: false };
    let mut phases = Vec::new();
    if work.prompt > 0 {
        phases.push(runner.prompt(work)?);
    }
    if work.decode > 0 && !runner.stopped {
        phases.push(runner.decode(work)?);
    }
    Ok((!runner.stopped).then_some(Profile { roofline, phases }))
}

struct Runner<'a> {
    engine: &'a mut Engine,
    profiler: Profiler,
    go_on: &'a mut dyn FnMut() -> bool,
    stopped: bool,
}

/// Whether a step is timed operation by operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Away,
    Close,
}

impl Runner<'_> {
    fn prompt(&mut self, work: Workload) -> Result<PhaseProfile, ObserveError> {
        let tokens = scattered_tokens(work.prompt, self.engine.vocabulary());
        if work.depth == 0 {
            self.whole_prompt(work, &tokens, Look::Away)?;
        }
        let (unobserved, _) = self.whole_prompt(work, &tokens, Look::Away)?;
        let (_, steps) = self.whole_prompt(work, &tokens, Look::Close)?;
        let entries = self.profiler.take();
        Ok(PhaseProfile { phase: Phase::Prompt, tokens: work.prompt, steps, unobserved, entries })
    }

    /// Reads a prompt in a sequence of its own; how long that took, and how many steps.
    fn whole_prompt(
        &mut self,
        work: Workload,
        tokens: &[u32],
        look: Look,
    ) -> Result<(Duration, usize), ObserveError> {
        let sequence = self.deep_sequence(work.depth)?;
        let (mut time, mut steps) = (Duration::ZERO, 0);
        let rows = self.engine.options().rows;
        let count = tokens.len().div_ceil(rows);
        for chunk in tokens.chunks(rows) {
            steps += 1;
            let logits = if steps == count { LogitRows::Last } else { LogitRows::None };
            time += self.step(Work::new(sequence, chunk, logits), look)?;
        }
        self.engine.remove_sequence(sequence)?;
        Ok((time, steps))
    }

    fn decode(&mut self, work: Workload) -> Result<PhaseProfile, ObserveError> {
        let sequence = self.deep_sequence(work.depth)?;
        let tokens = scattered_tokens(2 * work.decode + 1, self.engine.vocabulary());
        let mut unobserved = Duration::ZERO;
        for (i, token) in tokens.iter().enumerate() {
            // Both kinds of step at nearly the same depth, and whatever disturbs the machine meets both.
            let look = if i > 0 && i % 2 == 0 { Look::Close } else { Look::Away };
            let tokens = std::slice::from_ref(token);
            let time = self.step(Work::new(sequence, tokens, LogitRows::Last), look)?;
            if i % 2 == 1 {
                unobserved += time;
            }
        }
        self.engine.remove_sequence(sequence)?;
        let (tokens, steps) = (work.decode, work.decode);
        Ok(PhaseProfile { phase: Phase::Decode, tokens, steps, unobserved, entries: self.profiler.take() })
    }

    /// A sequence that holds `depth` tokens.
    fn deep_sequence(&mut self, depth: usize) -> Result<SequenceId, ObserveError> {
        let sequence = self.engine.add_sequence()?;
        for chunk in scattered_tokens(depth, self.engine.vocabulary()).chunks(self.engine.options().rows) {
            self.step(Work::new(sequence, chunk, LogitRows::None), Look::Away)?;
        }
        Ok(sequence)
    }

    /// How long a step took; nothing once it was asked to stop.
    fn step(&mut self, work: Work<'_>, look: Look) -> Result<Duration, ObserveError> {
        self.stopped = self.stopped || !(self.go_on)();
        if self.stopped {
            return Ok(Duration::ZERO);
        }
        let logit_rows = usize::from(work.logits == LogitRows::Last);
        let held = self.engine.len(work.sequence)?;
        self.profiler.expect(StepSize { rows: work.tokens.len(), logit_rows, held });
        let observer: Option<&mut dyn Observer> = match look {
            Look::Away => None,
            Look::Close => Some(&mut self.profiler),
        };
        let started = Instant::now();
        self.engine.step(&[work], observer)?;
        Ok(started.elapsed())
    }
}
