//! Turns work for sequences into steps of a program.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, Group, GroupStep, Limits, NO_PAGE, Observer, PAGE, Plan, Program, Row, Step};

use crate::error::EngineError;
use crate::pages::PagePool;
use crate::sequence::Sequence;

/// How large the engine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens a sequence can hold.
    pub context: usize,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Rows of a step: the chunk in which prompts are computed.
    pub rows: usize,
    /// Rows of a step whose logits are wanted.
    pub logit_rows: usize,
}

impl EngineOptions {
    /// Slots are 32-bit numbers: `context` rounded up to whole pages, for each sequence.
    fn check(self) -> Result<(), EngineError> {
        let most_pages = u32::MAX as usize / PAGE;
        let most_context = (most_pages / self.sequences.max(1)).saturating_sub(1) * PAGE;
        for (what, found, max) in [
            ("sequences", self.sequences, most_pages),
            ("context", self.context, most_context),
            ("rows", self.rows, self.context.saturating_mul(self.sequences)),
            ("logit_rows", self.logit_rows, self.rows),
        ] {
            if found == 0 || found > max {
                return Err(EngineError::Size { what, found, max });
            }
        }
        Ok(())
    }
}

/// Names a sequence of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(usize);

impl SequenceId {
    /// The number by which draws are keyed.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Which of the added tokens get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// None.
    None,
    /// The last one.
    Last,
    /// Each of them.
    All,
}

impl LogitRows {
    fn of(self, rows: std::ops::Range<u32>) -> std::ops::Range<u32> {
        match self {
            Self::None => rows.end..rows.end,
            Self::Last => rows.end.saturating_sub(1).max(rows.start)..rows.end,
            Self::All => rows,
        }
    }
}

/// Tokens to append to a sequence in one step.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// To which sequence.
    pub sequence: SequenceId,
    /// At least one token.
    pub tokens: &'a [u32],
    /// Which of them get logits.
    pub logits: LogitRows,
}

/// A program with the state of its sequences.
pub struct Engine {
    program: Box<dyn Program>,
    groups: Vec<Group>,
    pools: Vec<PagePool>,
    sequences: Vec<Option<Sequence>>,
    options: EngineOptions,
    vocabulary: usize,
}

impl Engine {
    /// Prepares `plan` on a backend. `weights` are the bytes of the plan's weights, in its order.
    ///
    /// # Errors
    /// A size of `options` is 0 or the caches have more slots than 32 bits can number; the backend refuses.
    pub fn open(
        backend: &dyn Backend,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let groups = plan.recording.groups.clone();
        let vocabulary = plan.recording.logits.width;
        options.check()?;
        let pages: Vec<usize> = groups.iter().map(|g| pages_for(g, options)).collect();
        let pools = groups.iter().zip(&pages).map(|(g, &n)| PagePool::new(&g.name, n)).collect();
        let limits = Limits { max_rows: options.rows, max_logit_rows: options.logit_rows, pages };
        let program = backend.open(plan, weights, &limits)?;
        let sequences = (0..options.sequences).map(|_| None).collect();
        Ok(Self { program, groups, pools, sequences, options, vocabulary })
    }

    /// Size of a logit row.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// What the engine was opened with.
    pub fn options(&self) -> EngineOptions {
        self.options
    }

    /// Starts an empty sequence.
    pub fn add_sequence(&mut self) -> Result<SequenceId, EngineError> {
        let groups = self.groups.len();
        let free = self.sequences.iter().position(Option::is_none);
        let index = free.ok_or(EngineError::TooManySequences { max: self.options.sequences })?;
        self.sequences[index] = Some(Sequence::new(groups));
        Ok(SequenceId(index))
    }

    /// Ends a sequence and returns its pages.
    pub fn remove_sequence(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let slot = self.sequences.get_mut(id.0).ok_or(EngineError::UnknownSequence(id.0))?;
        let mut sequence = slot.take().ok_or(EngineError::UnknownSequence(id.0))?;
        for (g, pool) in self.pools.iter_mut().enumerate() {
            sequence.release(g, pool);
        }
        Ok(())
    }

    /// Tokens a sequence holds.
    pub fn len(&self, id: SequenceId) -> Result<usize, EngineError> {
        Ok(self.sequence(id)?.len)
    }

    /// Whether a sequence holds no token.
    pub fn is_empty(&self, id: SequenceId) -> Result<bool, EngineError> {
        Ok(self.len(id)? == 0)
    }

    /// Computes one step; returns the wanted logits `[L, vocabulary]` in the order of `work`.
    ///
    /// # Errors
    /// The work does not fit, or the backend fails. No sequence is longer then; pages that were reserved serve the
    /// next step.
    pub fn step(
        &mut self,
        work: &[Work<'_>],
        observer: Option<&mut dyn Observer>,
    ) -> Result<&[f32], EngineError> {
        self.check_work(work)?;
        self.reserve(work)?;
        let step = self.build(work)?;
        let logits = self.program.run(&step, observer)?;
        for w in work {
            let sequence =
                self.sequences[w.sequence.0].as_mut().ok_or(EngineError::UnknownSequence(w.sequence.0))?;
            sequence.len += w.tokens.len();
            for (g, group) in self.groups.iter().enumerate() {
                sequence.drop_behind_window(g, group, &mut self.pools[g]);
            }
        }
        Ok(logits)
    }

    /// Appends any number of tokens to one sequence, in chunks. `visit` gets every wanted logit row in order, and may end
    /// the work early by returning `false`; between chunks without logits it is called with an empty row.
    pub fn extend(
        &mut self,
        id: SequenceId,
        tokens: &[u32],
        logits: LogitRows,
        mut visit: impl FnMut(&[f32]) -> bool,
    ) -> Result<(), EngineError> {
        let held = self.len(id)?;
        self.check_context(held, tokens.len())?;
        let (rows, vocabulary) = (self.options.rows, self.vocabulary);
        let size = if logits == LogitRows::All { rows.min(self.options.logit_rows) } else { rows };
        let count = tokens.len().div_ceil(size);
        for (i, chunk) in tokens.chunks(size).enumerate() {
            let wanted = if logits == LogitRows::Last && i + 1 < count { LogitRows::None } else { logits };
            let out = self.step(&[Work { sequence: id, tokens: chunk, logits: wanted }], None)?;
            let go_on = if out.is_empty() { visit(&[]) } else { out.chunks(vocabulary).all(&mut visit) };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence, EngineError> {
        self.sequences.get(id.0).and_then(Option::as_ref).ok_or(EngineError::UnknownSequence(id.0))
    }

    fn check_context(&self, held: usize, wanted: usize) -> Result<(), EngineError> {
        let context = self.options.context;
        if held + wanted > context { Err(EngineError::ContextFull { held, wanted, context }) } else { Ok(()) }
    }

    fn check_work(&self, work: &[Work<'_>]) -> Result<(), EngineError> {
        let rows: usize = work.iter().map(|w| w.tokens.len()).sum();
        if rows == 0 || rows > self.options.rows || work.iter().any(|w| w.tokens.is_empty()) {
            return Err(EngineError::StepSize { what: "rows", found: rows, max: self.options.rows });
        }
        let wanted: usize = work.iter().map(|w| w.logits.of(0..count(w.tokens.len())).len()).sum();
        if wanted > self.options.logit_rows {
            return Err(EngineError::StepSize {
                what: "logit rows",
                found: wanted,
                max: self.options.logit_rows,
            });
        }
        for (i, w) in work.iter().enumerate() {
            self.check_context(self.sequence(w.sequence)?.len, w.tokens.len())?;
            if work[..i].iter().any(|v| v.sequence == w.sequence) {
                return Err(EngineError::SequenceTwice(w.sequence.0));
            }
            if let Some(&token) = w.tokens.iter().find(|&&t| t as usize >= self.vocabulary) {
                return Err(EngineError::Token { token, vocabulary: self.vocabulary });
            }
        }
        Ok(())
    }

    fn reserve(&mut self, work: &[Work<'_>]) -> Result<(), EngineError> {
        for (g, pool) in self.pools.iter_mut().enumerate() {
            let sequences = &mut self.sequences;
            let needed: usize = work
                .iter()
                .filter_map(|w| sequences[w.sequence.0].as_ref().map(|s| s.pages_needed(g, w.tokens.len())))
                .sum();
            if needed > pool.available() {
                return Err(pool.exhausted());
            }
            for w in work {
                if let Some(sequence) = &mut sequences[w.sequence.0] {
                    sequence.reserve(g, w.tokens.len(), pool)?;
                }
            }
        }
        Ok(())
    }

    fn build(&self, work: &[Work<'_>]) -> Result<Step, EngineError> {
        let mut rows = Vec::new();
        let mut logit_rows = Vec::new();
        for (w, table) in work.iter().zip(0..) {
            let len = self.sequence(w.sequence)?.len;
            let first = count(rows.len());
            for (i, &token) in w.tokens.iter().enumerate() {
                let parent = i.checked_sub(1).map(|p| first + count(p));
                rows.push(Row { sequence: table, token, position: count(len + i), parent });
            }
            logit_rows.extend(w.logits.of(first..count(rows.len())));
        }
        let groups = (0..self.groups.len()).map(|g| self.group_step(g, work)).collect::<Result<_, _>>()?;
        Ok(Step::new(rows, groups, logit_rows)?)
    }

    fn group_step(&self, g: usize, work: &[Work<'_>]) -> Result<GroupStep, EngineError> {
        let mut step = GroupStep::default();
        for w in work {
            let sequence = self.sequence(w.sequence)?;
            step.pages_per_sequence = step.pages_per_sequence.max(sequence.tables[g].len());
            let positions = sequence.len..sequence.len + w.tokens.len();
            step.slots.extend(positions.map(|p| sequence.slot(g, p)));
        }
        for w in work {
            let start = step.page_tables.len();
            step.page_tables.extend_from_slice(&self.sequence(w.sequence)?.tables[g]);
            step.page_tables.resize(start + step.pages_per_sequence, NO_PAGE);
        }
        Ok(step)
    }
}

/// Pages that `options.sequences` sequences can need at once. Behind a window a sequence keeps the window and the
/// chunk that is being computed.
fn pages_for(group: &Group, options: EngineOptions) -> usize {
    let all = options.context.div_ceil(PAGE);
    let each = match group.window {
        Some(window) => all.min((window as usize + options.rows).div_ceil(PAGE) + 1),
        None => all,
    };
    each * options.sequences
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("a context has fewer than 2^32 positions")
}
