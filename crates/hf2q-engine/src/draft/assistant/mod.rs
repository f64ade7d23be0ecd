//! Gemma 4's assistants as drafters: chains whose tokens are all drawn at one position.

mod chain;
mod rows;

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_model::ModelError;
use hf2q_model::assistant::Assistant;
use hf2q_plan::{Backend, KvFormat, Passes, Plan, Recording};

use crate::draft::{DraftRequest, DraftTree, Drafter, Seen};
use crate::engine::{Engine, LogitRows, SequenceId, Work};
use crate::error::EngineError;
use crate::needs::Needs;
use crate::options::{Budget, CacheOptions, EngineOptions, WindowPolicy};
use crate::scheduler::JobId;
use chain::Chain;
use rows::{KvTaps, Row};

/// Drafts with an assistant.
///
/// It has an engine of its own, whose rows are the positions that it has seen: they hold the target's keys and values. What is
/// drafted are nodes beside each other at the last of these positions, and leaves nothing behind.
pub struct AssistantDrafter {
    name: String,
    assistant: Assistant,
    engine: Engine,
    taps: Vec<String>,
    kv: Vec<KvTaps>,
    jobs: HashMap<JobId, Followed>,
    /// Sequences that there were.
    serial: u64,
    /// Values in a row of logits.
    width: usize,
}

/// What is known of a job.
struct Followed {
    sequence: SequenceId,
    /// The sequence's number among all that there were.
    serial: u64,
    /// Position at which it begins.
    first: usize,
    /// The last position that was seen. The sequence ends before it.
    last: Option<Row>,
}

impl Followed {
    /// The position that is seen next.
    fn next(&self) -> usize {
        self.last.as_ref().map_or(self.first, |row| row.position + 1)
    }
}

impl AssistantDrafter {
    /// Prepares an assistant on a backend. `target` is the recording of the model that it drafts for, and `options` are those of
    /// that model's engine; `format` is how the assistant's engine keeps keys and values, of as many positions as the other.
    ///
    /// # Errors
    /// The target's plan is not what the assistant reads; no engine can be opened.
    pub fn open(
        assistant: Assistant,
        target: &Recording,
        backend: &dyn Backend,
        (format, options): (KvFormat, EngineOptions),
    ) -> Result<Self, EngineError> {
        let name = name(&assistant);
        let refused = |error: ModelError| failed(&name, error);
        let found = assistant.taps(target).map_err(refused)?;
        let (taps, kv) = rows::taps(found);
        let recording = assistant.record(format).map_err(refused)?;
        let weights = assistant.weights_for(&recording);
        let width = recording.logits.width;
        let options = sizes(options, &recording, target);
        let plan = Arc::new(Plan::compile(recording, Passes::ALL));
        let engine = Engine::open(backend, plan, weights, options)?;
        Ok(Self { name, assistant, engine, taps, kv, jobs: HashMap::new(), serial: 0, width })
    }

    /// What [`AssistantDrafter::open`] would take of memory with the same arguments.
    ///
    /// # Errors
    /// As there, but for the memory itself.
    pub fn needs(
        assistant: &Assistant,
        target: &Recording,
        backend: &dyn Backend,
        (format, options): (KvFormat, EngineOptions),
    ) -> Result<Needs, EngineError> {
        let recording = assistant.record(format).map_err(|error| failed(&name(assistant), error))?;
        let weights = assistant.weights_for(&recording);
        let options = sizes(options, &recording, target);
        Needs::new(backend, &Plan::compile(recording, Passes::ALL), weights, options)
    }

    /// Makes sure that the job's next position is `from`; what was seen before others is of no use otherwise.
    fn follow(&mut self, id: JobId, from: usize) -> Result<(), EngineError> {
        if self.jobs.get(&id).is_some_and(|job| job.next() == from) {
            return Ok(());
        }
        self.forget(id);
        let sequence = self.engine.add_sequence()?;
        self.serial += 1;
        self.jobs.insert(id, Followed { sequence, serial: self.serial, first: from, last: None });
        Ok(())
    }

    /// Appends rows to the job's sequence, all but the last of those that it has now.
    fn store(&mut self, id: JobId, rows: Vec<Row>) -> Result<(), EngineError> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        let mut rows: Vec<Row> = job.last.take().into_iter().chain(rows).collect();
        job.last = rows.pop();
        let (sequence, serial) = (job.sequence, job.serial);
        let state = 2 * self.assistant.target_hidden();
        for rows in rows.chunks(self.engine.options().rows) {
            let from = self.engine.len(sequence)?;
            let tokens: Vec<u32> = (from..from + rows.len()).map(|at| mark(serial, at, self.width)).collect();
            let mut inputs = vec![vec![0.0; state * rows.len()]];
            let of_all = |i: usize| rows.iter().flat_map(|row| row.kv[i].iter().copied()).collect();
            inputs.extend((0..2 * self.kv.len()).map(of_all));
            let work = Work::new(sequence, &tokens, LogitRows::None).with_inputs(&inputs);
            self.engine.step(&[work], None)?;
        }
        Ok(())
    }

    /// [`Drafter::draft`], which shows the logits of each drafted token with the number of its request: those of a chain in
    /// their order.
    ///
    /// # Errors
    /// As [`Drafter::draft`].
    pub fn draft_shown(
        &mut self,
        requests: &[DraftRequest<'_>],
        show: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<Vec<DraftTree>, EngineError> {
        let mut chains = Vec::new();
        let mut trees = vec![DraftTree::new(); requests.len()];
        for (number, request) in requests.iter().enumerate() {
            chains.extend(self.chain(request)?.map(|chain| (number, chain)));
        }
        let mut level = 0;
        while self.extend(&mut chains, level, show)? {
            level += 1;
        }
        for (number, chain) in &chains {
            self.engine.accept(chain.sequence, &[])?;
            trees[*number] = chain.tree();
        }
        Ok(trees)
    }

    /// One further token of each chain that wants one; `false` where none does.
    fn extend(
        &mut self,
        chains: &mut [(usize, Chain<'_>)],
        level: usize,
        show: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<bool, EngineError> {
        let options = self.engine.options();
        let most = options.rows.min(options.logit_rows);
        let mut active: Vec<&mut (usize, Chain<'_>)> =
            chains.iter_mut().filter(|(_, chain)| chain.wants(level)).take(most).collect();
        let inputs = active.iter().map(|(_, chain)| self.inputs(chain)).collect::<Result<Vec<_>, _>>()?;
        let beside = DraftTree { tokens: vec![0; level + 1], parents: vec![None; level + 1] };
        let mut work = Vec::new();
        for ((_, chain), inputs) in active.iter().zip(&inputs) {
            // A node has to continue something: the first position is a row of its own, which is taken away again.
            let row = match chain.is_first {
                true => Work::new(chain.sequence, &[0], LogitRows::Last),
                false => Work::new(chain.sequence, &[], LogitRows::None).with_tree(&beside),
            };
            work.push(row.with_inputs(inputs));
        }
        if work.is_empty() {
            return Ok(false);
        }
        let logits = self.engine.step(&work, None)?.to_vec();
        let next = self.engine.output(Assistant::NEXT)?;
        let groups = self.assistant.groups();
        let scores = groups.map_or(Ok(Vec::new()), |_| self.engine.output(Assistant::SCORES))?;
        let rows = logits.chunks(self.width).zip(next.chunks(self.assistant.target_hidden())).enumerate();
        for ((number, chain), (i, (logits, next))) in active.iter_mut().zip(rows) {
            let scores = groups.and_then(|n| scores.get(i * n..(i + 1) * n)).unwrap_or_default();
            let logits = self.assistant.of_all_tokens(scores, logits);
            show(*number, &logits);
            chain.push(&logits, next);
        }
        let first: Vec<SequenceId> =
            active.iter().filter(|(_, c)| c.is_first).map(|(_, c)| c.sequence).collect();
        first.into_iter().try_for_each(|sequence| self.engine.rewind(sequence, 0))?;
        Ok(true)
    }

    /// What the next row of a chain is made of.
    fn inputs(&self, chain: &Chain<'_>) -> Result<Vec<Vec<f32>>, EngineError> {
        let mut state = Vec::with_capacity(2 * self.assistant.target_hidden());
        let made = self.assistant.state(chain.last(), chain.hidden(), &mut state);
        made.map_err(|error| failed(&self.name, error))?;
        let row = self.jobs.get(&chain.job()).and_then(|job| job.last.as_ref());
        let kv = row.into_iter().flat_map(|row| row.kv.iter().cloned());
        Ok(std::iter::once(state).chain(kv).collect())
    }

    /// The chain of a job of which everything was seen but the last token.
    fn chain<'a>(&self, request: &DraftRequest<'a>) -> Result<Option<Chain<'a>>, EngineError> {
        let Some(job) = self.jobs.get(&request.job) else { return Ok(None) };
        let Some(last) = job.last.as_ref().filter(|last| last.position + 2 == request.history.len()) else {
            return Ok(None);
        };
        let held = self.engine.len(job.sequence)?;
        let fits = held < self.engine.options().context;
        Ok(fits.then(|| Chain::new(*request, (job.sequence, held == 0), last.hidden.clone())))
    }
}

impl Drafter for AssistantDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn taps(&self) -> &[String] {
        &self.taps
    }

    /// Keys and values are there of all rows. A hidden state is used where a token was drawn, so there were logits.
    fn needs_all_rows(&self) -> bool {
        false
    }

    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        for seen in seen.iter().filter(|seen| !seen.tokens.is_empty()) {
            self.follow(seen.job, seen.from)?;
            let first = self.jobs.get(&seen.job).map_or(seen.from, |job| job.first);
            let rows = rows::rows(&self.assistant, &self.kv, seen, first);
            let rows = rows.ok_or_else(|| failed(&self.name, "it is not shown what it asked for"))?;
            self.store(seen.job, rows)?;
        }
        Ok(())
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        self.draft_shown(requests, &mut |_, _| {})
    }

    fn forget(&mut self, job: JobId) {
        let Some(job) = self.jobs.remove(&job) else { return };
        // Only a sequence that is not there cannot be removed. No other begins alike, so nothing is worth keeping.
        let _ = self.engine.remove_sequence(job.sequence);
        self.engine.forget();
    }
}

/// An engine as large as the target's; nothing in its caches is of use to another sequence.
fn sizes(options: EngineOptions, recording: &Recording, target: &Recording) -> EngineOptions {
    let page = |r: &Recording| r.caches.iter().map(hf2q_plan::Cache::page_bytes).sum::<usize>().max(1);
    let budget = match options.cache.budget {
        // As many pages as that makes there.
        Budget::Bytes(bytes) => {
            let share = bytes as f64 * page(recording) as f64 / page(target) as f64;
            Budget::Bytes((share as usize).max(page(recording)))
        }
        same => same,
    };
    let cache = CacheOptions { budget, windows: WindowPolicy::Drop { ends: 0 } };
    let logit_rows = options.sequences.min(options.rows);
    EngineOptions { logit_rows, cache, ..options }
}

/// What stands for a row at a position of a sequence. Rows are made of what is seen, so two of them need not be alike where
/// their tokens are, and the engine's caches must not take them for that: the first page spells the sequence's number.
fn mark(serial: u64, at: usize, base: usize) -> u32 {
    let base = base.max(2) as u64;
    let unit = u32::try_from(at).ok().and_then(|at| base.checked_pow(at));
    let digit = unit.map_or(0, |unit| serial / unit % base);
    u32::try_from(digit).unwrap_or(0)
}

fn name(assistant: &Assistant) -> String {
    format!("assistant of {} layers", assistant.drafter().config().layers.len())
}

fn failed(drafter: &str, why: impl ToString) -> EngineError {
    EngineError::Drafter { drafter: drafter.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_pages_of_sequences_differ() {
        let page = |serial: u64, base: usize| (0..hf2q_plan::PAGE).map(move |at| mark(serial, at, base));
        for base in [1, 2, 80, 262_144] {
            let mut seen = std::collections::HashSet::new();
            for serial in (0..1000).chain([u64::MAX - 1, u64::MAX]) {
                let tokens: Vec<u32> = page(serial, base).collect();
                assert!(tokens.iter().all(|&t| (t as usize) < base.max(2)));
                assert!(seen.insert(tokens), "{serial} in base {base}");
            }
        }
    }
}
