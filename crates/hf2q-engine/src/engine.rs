//! Turns work for sequences into steps of a program.

mod build;
mod tree;

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, NO_PAGE, Observer, Plan, Program, ProgramMemory, RowKind};

use crate::cache::KvCache;
use crate::draft::DraftTree;
use crate::error::EngineError;
use crate::needs;
use crate::options::EngineOptions;
use crate::sequence::Sequence;
use crate::stats::CacheStats;

pub(crate) use tree::Tree;

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
    /// How many of `rows`.
    pub(crate) fn count(self, rows: usize) -> usize {
        self.of(0..count(rows)).len()
    }

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
    /// At least one token, unless there is a tree that grows.
    pub tokens: &'a [u32],
    /// Which of them get logits.
    pub logits: LogitRows,
    /// Nodes that continue the last token; each gets logits, behind those of `tokens`. The sequence does not have them before
    /// [`Engine::accept`]; until then, but for other calls that change the sequence, the same tree with more nodes can be
    /// given with no `tokens`: the new nodes alone are computed then.
    pub tree: Option<&'a DraftTree>,
    /// For each input of the recording `[rows, width]`: those of `tokens`, then those of new nodes.
    pub inputs: &'a [Vec<f32>],
}

impl<'a> Work<'a> {
    /// `tokens` for a sequence, and which of them get logits.
    pub fn new(sequence: SequenceId, tokens: &'a [u32], logits: LogitRows) -> Self {
        Self { sequence, tokens, logits, tree: None, inputs: &[] }
    }

    /// The same and a draft of what follows.
    pub fn with_tree(self, tree: &'a DraftTree) -> Self {
        Self { tree: Some(tree), ..self }
    }

    /// The same with what the recording's inputs are for its rows.
    pub fn with_inputs(self, inputs: &'a [Vec<f32>]) -> Self {
        Self { inputs, ..self }
    }
}

/// A program with the state of its sequences.
pub struct Engine {
    program: Box<dyn Program>,
    cache: KvCache,
    sequences: Vec<Option<Sequence>>,
    options: EngineOptions,
    vocabulary: usize,
    /// Tokens that have an embedding.
    tokens: usize,
    /// Widths of the recording's inputs.
    inputs: Vec<usize>,
    /// Whether the plan has the operation whose output is pooled.
    embeds: bool,
    /// Of each output which rows it has, and values in a row.
    outputs: Vec<(RowKind, usize)>,
    /// Of the last step: its rows, and which of them had logits.
    computed: (usize, Vec<u32>),
}

/// The norm behind the last layer: what it gives is what logits are made of.
pub(crate) const LAST_HIDDEN: &str = "output_norm";

impl Engine {
    /// Prepares `plan` on a backend. `weights` are the bytes of the plan's weights, in its order.
    ///
    /// # Errors
    /// A size of `options` is 0, the caches have more slots than 32 bits can number or no page fits into their budget; the
    /// backend refuses.
    pub fn open(
        backend: &dyn Backend,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        options.check()?;
        let vocabulary = plan.recording.logits.width;
        let tokens = plan.recording.vocabulary().unwrap_or(vocabulary);
        let inputs = plan.recording.inputs.clone();
        let embeds = plan.recording.ops.iter().any(|op| op.name == LAST_HIDDEN);
        let kept = plan.recording.outputs.iter().filter_map(|view| plan.recording.activation(view.tensor));
        let outputs = kept.zip(&plan.recording.outputs).map(|((rows, _), view)| (rows, view.width)).collect();
        let cache = KvCache::new(&plan.recording, options)?;
        let limits = needs::limits(options, cache.pages());
        let program = backend.open(plan, weights, &limits)?;
        let sequences = (0..options.sequences).map(|_| None).collect();
        let computed = (0, Vec::new());
        Ok(Self { program, cache, sequences, options, vocabulary, tokens, inputs, embeds, outputs, computed })
    }

    /// What the backend has allocated beside the weights; `None` if it does not count it.
    pub fn memory(&self) -> Option<ProgramMemory> {
        self.program.memory()
    }

    /// Size of a logit row.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Tokens that have an embedding; others cannot be computed.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// What the engine was opened with.
    pub fn options(&self) -> EngineOptions {
        self.options
    }

    /// Starts an empty sequence.
    pub fn add_sequence(&mut self) -> Result<SequenceId, EngineError> {
        let index = self.vacancy()?;
        self.sequences[index] = Some(Sequence::new(self.cache.groups()));
        Ok(SequenceId(index))
    }

    /// Starts a sequence with as much of the beginning of `tokens` as the caches still hold from any other sequence,
    /// present or past. Returns how many tokens that is: never all of them, for the last one's logits are not kept.
    /// The rest is the caller's to add; its logits are, bit for bit, those of a sequence that began empty.
    ///
    /// # Errors
    /// No place for a sequence is left; the backend fails.
    pub fn add_sequence_with_prefix(&mut self, tokens: &[u32]) -> Result<(SequenceId, usize), EngineError> {
        let index = self.vacancy()?;
        let sequence = self.cache.adopt(tokens, &mut *self.program)?;
        let len = sequence.len();
        self.sequences[index] = Some(sequence);
        Ok((SequenceId(index), len))
    }

    /// Starts a sequence that holds what another one holds. They share all pages that are full.
    ///
    /// # Errors
    /// No place for a sequence, or no page for what is partly filled, is left; the backend fails.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId, EngineError> {
        let index = self.vacancy()?;
        let original = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        let original = original.ok_or(EngineError::UnknownSequence(id.0))?;
        self.cache.drop_tree(original);
        self.sequences[index] = Some(self.cache.fork(original, &mut *self.program)?);
        Ok(SequenceId(index))
    }

    /// Ends a sequence. Its pages are kept for [`Engine::add_sequence_with_prefix`] until others need them.
    pub fn remove_sequence(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let slot = self.sequences.get_mut(id.0).ok_or(EngineError::UnknownSequence(id.0))?;
        let mut sequence = slot.take().ok_or(EngineError::UnknownSequence(id.0))?;
        self.cache.drop_tree(&mut sequence);
        self.cache.release(sequence);
        Ok(())
    }

    /// Makes the end of a sequence a place from which [`Engine::add_sequence_with_prefix`] can go on, also if the windows
    /// of the sequence move on and their pages are [dropped](crate::WindowPolicy::Drop).
    pub fn remember(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        self.cache.remember(sequence.ok_or(EngineError::UnknownSequence(id.0))?);
        Ok(())
    }

    /// Forgets all prefixes. Sequences keep what they hold.
    pub fn forget(&mut self) {
        self.cache.clear();
    }

    /// Whether hidden states behind the last norm can be seen.
    pub(crate) fn embeds(&self) -> bool {
        self.embeds
    }

    pub(crate) fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Pages of group `g` that a sequence holds.
    pub(crate) fn pages_held(&self, id: SequenceId, g: usize) -> usize {
        let sequence = self.sequences.get(id.0).and_then(Option::as_ref);
        sequence.map_or(0, |s| s.tables[g].iter().filter(|&&page| page != NO_PAGE).count())
    }

    /// Further pages of group `g` that a sequence needs for `more` tokens.
    pub(crate) fn pages_needed(&self, id: SequenceId, g: usize, more: usize) -> usize {
        let sequence = self.sequences.get(id.0).and_then(Option::as_ref);
        sequence.map_or(0, |s| s.pages_needed(g, more))
    }

    /// Ends all sequences and forgets all prefixes, whatever state a panic has left them in.
    pub(crate) fn reset(&mut self) {
        self.sequences.fill_with(|| None);
        self.cache.reset();
    }

    /// What the caches hold, and how often that was of use.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Tokens a sequence holds.
    pub fn len(&self, id: SequenceId) -> Result<usize, EngineError> {
        Ok(self.sequence(id)?.len())
    }

    /// Whether a sequence holds no token.
    pub fn is_empty(&self, id: SequenceId) -> Result<bool, EngineError> {
        Ok(self.len(id)? == 0)
    }

    /// Computes one step; returns the wanted logits `[L, vocabulary]` in the order of `work`.
    ///
    /// # Errors
    /// The work does not fit, or the backend fails. No sequence is longer then, and none of those that were named has a tree;
    /// pages that were reserved serve the next step.
    pub fn step(
        &mut self,
        work: &[Work<'_>],
        observer: Option<&mut dyn Observer>,
    ) -> Result<&[f32], EngineError> {
        self.check_work(work)?;
        let step = match self.prepare(work) {
            Ok(step) => step,
            Err(error) => {
                drop_trees(&mut self.sequences, &mut self.cache, work);
                return Err(error);
            }
        };
        if !self.outputs.is_empty() {
            self.computed = (step.len(), step.logit_rows.clone());
        }
        let logits = match self.program.run(&step, observer) {
            Ok(logits) => logits,
            Err(error) => {
                drop_trees(&mut self.sequences, &mut self.cache, work);
                return Err(error.into());
            }
        };
        for w in work {
            let sequence =
                self.sequences[w.sequence.0].as_mut().ok_or(EngineError::UnknownSequence(w.sequence.0))?;
            let before = sequence.len();
            sequence.tokens.extend_from_slice(w.tokens);
            self.cache.advance(sequence, before);
        }
        Ok(logits)
    }

    /// Output `index` of the recording ([`hf2q_plan::Recording::keep`]) in the last step: `[rows, width]`, the rows in the
    /// order of the work, of each its tokens and then its new nodes.
    ///
    /// # Errors
    /// The recording has no such output, or the backend fails.
    pub fn output(&self, index: usize) -> Result<Vec<f32>, EngineError> {
        Ok(self.program.output(index)?)
    }

    /// The same with a row for each of the step's, also of results that only rows with logits have: zeros for the others.
    ///
    /// # Errors
    /// As [`Engine::output`].
    pub fn output_of_rows(&self, index: usize) -> Result<Vec<f32>, EngineError> {
        let values = self.output(index)?;
        let Some(&(RowKind::Logits, width)) = self.outputs.get(index) else { return Ok(values) };
        let (rows, wanted) = &self.computed;
        let mut all = vec![0.0; rows * width];
        for (row, values) in wanted.iter().zip(values.chunks(width)) {
            all[*row as usize * width..][..width].copy_from_slice(values);
        }
        Ok(all)
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
            let out = self.step(&[Work::new(id, chunk, wanted)], None)?;
            let go_on = if out.is_empty() { visit(&[]) } else { out.chunks(vocabulary).all(&mut visit) };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    fn vacancy(&self) -> Result<usize, EngineError> {
        let free = self.sequences.iter().position(Option::is_none);
        free.ok_or(EngineError::TooManySequences { max: self.options.sequences })
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence, EngineError> {
        self.sequences.get(id.0).and_then(Option::as_ref).ok_or(EngineError::UnknownSequence(id.0))
    }

    fn check_context(&self, held: usize, wanted: usize) -> Result<(), EngineError> {
        let context = self.options.context;
        if held + wanted > context { Err(EngineError::ContextFull { held, wanted, context }) } else { Ok(()) }
    }
}

/// The trees of a step that failed go.
fn drop_trees(sequences: &mut [Option<Sequence>], cache: &mut KvCache, work: &[Work<'_>]) {
    for w in work {
        if let Some(sequence) = &mut sequences[w.sequence.0] {
            cache.drop_tree(sequence);
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("a context has fewer than 2^32 positions")
}
