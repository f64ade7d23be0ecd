//! A smaller model of the same vocabulary guesses: token by token, with the job's own sampler and key.

use std::collections::HashMap;

use super::{DraftRequest, DraftTree, Drafter};
use crate::engine::{Engine, LogitRows, SequenceId, Work};
use crate::error::EngineError;
use crate::scheduler::JobId;

/// Drafts with a model that has an engine of its own.
///
/// What it drafts are nodes behind the end of a sequence that holds what was drawn: those that turn out right are accepted when
/// the next draft is asked for, the others leave nothing behind.
pub struct ModelDrafter {
    name: String,
    engine: Engine,
    jobs: HashMap<JobId, Followed>,
}

/// What is known of a job.
struct Followed {
    sequence: SequenceId,
    /// The last draft, a chain. All but the last token of it were computed.
    chain: Vec<u32>,
}

/// A draft that is being made.
struct Growing<'a, 'r> {
    /// Which request it is.
    number: usize,
    request: &'a DraftRequest<'r>,
    sequence: SequenceId,
    /// The history and what is drafted so far.
    text: Vec<u32>,
    tree: DraftTree,
}

impl Growing<'_, '_> {
    /// Draws the next token of the chain.
    fn draw(&mut self, logits: &[f32]) -> Result<(), EngineError> {
        let r = self.request;
        let drawn = r.sampler.sample_allowed(logits, &self.text, r.draws, None)?;
        self.text.push(drawn.token);
        let above = self.tree.len().checked_sub(1);
        self.tree.push(drawn.token, above);
        Ok(())
    }

    fn wants_more(&self) -> bool {
        self.tree.len() < self.request.depth.min(self.request.room)
    }
}

impl ModelDrafter {
    /// `name` says what the model is. Its engine has no sequences, as many places for them as jobs may run, and logits for
    /// each; its vocabulary is the target's.
    pub fn new(name: &str, engine: Engine) -> Self {
        Self { name: format!("model {name}"), engine, jobs: HashMap::new() }
    }

    /// The job's sequence, which holds what was computed of its history.
    fn follow(&mut self, r: &DraftRequest<'_>) -> Result<SequenceId, EngineError> {
        let Some(job) = self.jobs.get_mut(&r.job) else {
            let (sequence, _) = self.engine.add_sequence_with_prefix(r.history)?;
            self.jobs.insert(r.job, Followed { sequence, chain: Vec::new() });
            return Ok(sequence);
        };
        let held = self.engine.len(job.sequence)?;
        // The last token of the history is computed anew, for its logits.
        let new = &r.history[held.min(r.history.len())..r.history.len() - 1];
        let computed = &job.chain[..job.chain.len().saturating_sub(1)];
        let right = computed.iter().zip(new).take_while(|(a, b)| a == b).count();
        self.engine.accept(job.sequence, &(0..right).collect::<Vec<_>>())?;
        job.chain.clear();
        Ok(job.sequence)
    }

    /// Computes what is missing of the histories but the last token of each, as far as one step goes: nobody waits longer for
    /// a prompt to be drafted. Those that are not caught up with are left out.
    fn catch_up(&mut self, all: &mut Vec<Growing<'_, '_>>) -> Result<(), EngineError> {
        let mut rows = self.engine.options().rows;
        let mut result = Ok(());
        all.retain(|growing| {
            let computed = self.engine.len(growing.sequence).and_then(|held| {
                let missing = &growing.text[held..growing.text.len() - 1];
                let now = &missing[..missing.len().min(rows)];
                rows -= now.len();
                self.engine.extend(growing.sequence, now, LogitRows::None, |_| true)?;
                Ok(now.len() == missing.len())
            });
            match computed {
                Ok(caught_up) => caught_up,
                Err(error) => {
                    result = Err(error);
                    false
                }
            }
        });
        result
    }

    /// The last token of each history, all at once; the first token of each draft.
    fn begin(&mut self, all: &mut [Growing<'_, '_>]) -> Result<(), EngineError> {
        let vocabulary = self.engine.vocabulary();
        let work: Vec<Work<'_>> =
            all.iter().map(|g| Work::new(g.sequence, &g.text[g.text.len() - 1..], LogitRows::Last)).collect();
        let logits = self.engine.step(&work, None)?;
        all.iter_mut().zip(logits.chunks(vocabulary)).try_for_each(|(g, logits)| g.draw(logits))
    }

    /// One further token of each draft that wants one; `false` where none does.
    fn grow(&mut self, all: &mut [Growing<'_, '_>]) -> Result<bool, EngineError> {
        let vocabulary = self.engine.vocabulary();
        let work: Vec<Work<'_>> = all
            .iter()
            .filter(|g| g.wants_more())
            .map(|g| Work::new(g.sequence, &[], LogitRows::None).with_tree(&g.tree))
            .collect();
        if work.is_empty() {
            return Ok(false);
        }
        let logits = self.engine.step(&work, None)?;
        let more = all.iter_mut().filter(|g| g.wants_more());
        more.zip(logits.chunks(vocabulary)).try_for_each(|(g, logits)| g.draw(logits))?;
        Ok(true)
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        let context = self.engine.options().context;
        let mut all = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            // What does not fit into its context is drafted no further.
            if request.history.len() + request.depth <= context && request.depth.min(request.room) > 0 {
                let sequence = self.follow(request)?;
                let (text, tree) = (request.history.to_vec(), DraftTree::new());
                all.push(Growing { number: i, request, sequence, text, tree });
            }
        }
        let mut trees = vec![DraftTree::new(); requests.len()];
        self.catch_up(&mut all)?;
        if all.is_empty() {
            return Ok(trees);
        }
        self.begin(&mut all)?;
        while self.grow(&mut all)? {}
        for growing in all {
            if let Some(job) = self.jobs.get_mut(&growing.request.job) {
                job.chain.clone_from(&growing.tree.tokens);
            }
            trees[growing.number] = growing.tree;
        }
        Ok(trees)
    }

    fn forget(&mut self, job: JobId) {
        if let Some(job) = self.jobs.remove(&job) {
            // It is one of its own, so it exists.
            let _ = self.engine.remove_sequence(job.sequence);
        }
    }
}
