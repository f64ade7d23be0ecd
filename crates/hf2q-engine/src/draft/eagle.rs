//! EAGLE-3 heads as drafters: chains of one small layer, which begin at what the target has computed.

mod fusion;

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_model::eagle3::Eagle3;
use hf2q_plan::{Backend, KvFormat, Passes, Plan};

use crate::draft::{DraftRequest, DraftTree, Drafter, Seen};
use crate::engine::{Engine, LogitRows, SequenceId, Work};
use crate::error::EngineError;
use crate::needs::Needs;
use crate::options::EngineOptions;
use crate::scheduler::JobId;
use fusion::Fusion;

/// Drafts with a head.
///
/// It has an engine of its own. A row of a job's sequence there is a state of the target at a position with the token behind that
/// position. What is drafted are nodes behind its end, with states that the head has made, and leaves nothing behind.
pub struct EagleDrafter {
    name: String,
    head: Eagle3,
    fusion: Fusion,
    engine: Engine,
    jobs: HashMap<JobId, Followed>,
}

/// What is known of a job.
struct Followed {
    sequence: SequenceId,
    /// What was seen of positions that are not computed yet, `[rows, width]` of each tap: many at once cost little, and those
    /// that no draft needs nothing.
    features: Vec<Vec<f32>>,
    rows: usize,
    /// The token behind each of them, but for the last one's, which is not known.
    tokens: Vec<u32>,
    /// The position that is seen next.
    next: usize,
}

impl Followed {
    /// Takes the first `count` positions out.
    fn take(&mut self, count: usize) -> Vec<Vec<f32>> {
        let rows = self.rows;
        self.rows -= count;
        let of_tap = |values: &mut Vec<f32>| values.drain(..values.len() / rows.max(1) * count).collect();
        self.features.iter_mut().map(of_tap).collect()
    }
}

/// What a row of the head has given.
struct Guess {
    /// Of all tokens.
    logits: Vec<f32>,
    /// To go on with.
    state: Vec<f32>,
}

/// A draft in the making.
struct Chain<'a> {
    request: DraftRequest<'a>,
    sequence: SequenceId,
    /// What was drawn, the draft at its end.
    history: Vec<u32>,
    /// The state that goes with the last token.
    state: [Vec<f32>; 1],
    /// Drafted tokens that the head has computed, or is to compute now.
    nodes: DraftTree,
    ended: bool,
}

impl Chain<'_> {
    fn drafted(&self) -> &[u32] {
        &self.history[self.request.history.len()..]
    }

    /// Whether the token that was drawn last is to get one that continues it.
    fn goes_on(&self) -> bool {
        !self.ended && self.drafted().len() < self.request.depth.min(self.request.room)
    }

    /// Draws a token of the job's vocabulary.
    fn draw(&mut self, guess: Guess) {
        let Guess { logits, state } = guess;
        match self.request.sampler.sample_allowed(&logits, &self.history, self.request.draws, None) {
            Ok(drawn) => self.history.push(drawn.token),
            // A draft may end anywhere.
            Err(_) => self.ended = true,
        }
        self.state = [state];
    }

    /// Makes the token that was drawn last a node.
    fn grow(&mut self) {
        let above = self.nodes.len().checked_sub(1);
        self.nodes.push(self.history.last().copied().unwrap_or_default(), above);
    }
}

impl EagleDrafter {
    /// Prepares a head on a backend; `format` is how keys and values are kept.
    ///
    /// # Errors
    /// The backend refuses, or no engine can be opened with `options`.
    pub fn open(
        head: Eagle3,
        backend: &dyn Backend,
        (format, options): (KvFormat, EngineOptions),
    ) -> Result<Self, EngineError> {
        let name = name(&head);
        let (plan, weights) = planned(&head, format)?;
        let engine = Engine::open(backend, plan, weights, options)?;
        let fusion = Fusion::open(&head, backend, options.rows).map_err(|error| error.of(&name))?;
        Ok(Self { name, head, fusion, engine, jobs: HashMap::new() })
    }

    /// What [`EagleDrafter::open`] would take of memory with the same arguments.
    ///
    /// # Errors
    /// As there, but for the memory itself.
    pub fn needs(
        head: &Eagle3,
        backend: &dyn Backend,
        (format, options): (KvFormat, EngineOptions),
    ) -> Result<Needs, EngineError> {
        let (plan, weights) = planned(head, format)?;
        let mut needs = Needs::new(backend, &plan, weights, options)?;
        let (weights, work) =
            Fusion::needs(head, backend, options.rows).map_err(|error| error.of(&name(head)))?;
        needs.weights = needs.weights.saturating_add(weights);
        needs.work = needs.work.saturating_add(work);
        Ok(needs)
    }

    /// Makes sure that the job's next position is `from`; what was seen before others is of no use otherwise.
    fn follow(&mut self, id: JobId, from: usize) -> Result<(), EngineError> {
        if self.jobs.get(&id).is_some_and(|job| job.next == from) {
            return Ok(());
        }
        self.forget(id);
        let sequence = self.engine.add_sequence()?;
        let features = vec![Vec::new(); self.head.taps().len()];
        self.jobs.insert(id, Followed { sequence, features, rows: 0, tokens: Vec::new(), next: from });
        Ok(())
    }

    /// Takes over what the target has computed of a job.
    fn take(&mut self, seen: &Seen<'_>) -> Result<(), EngineError> {
        if !self.fusion.reads(seen.tokens.len(), seen.features) {
            return Err(failed(&self.name, "it is not shown what it asked for"));
        }
        self.follow(seen.job, seen.from)?;
        let Some(job) = self.jobs.get_mut(&seen.job) else { return Ok(()) };
        // The token of a sequence's first position, or of one whose token a draft has computed, is behind no other.
        job.tokens.extend_from_slice(&seen.tokens[usize::from(job.rows == 0)..]);
        job.rows += seen.tokens.len();
        job.features.iter_mut().zip(seen.features).for_each(|(all, new)| all.extend_from_slice(new));
        job.next += seen.tokens.len();
        let most = self.engine.options().rows;
        if job.tokens.len() >= most { self.catch_up(seen.job, most) } else { Ok(()) }
    }

    /// Computes rows of a job until fewer than `below` are left.
    fn catch_up(&mut self, id: JobId, below: usize) -> Result<(), EngineError> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        while job.tokens.len() >= below && !job.tokens.is_empty() {
            let rows = job.tokens.len().min(self.engine.options().rows);
            let tokens: Vec<u32> = job.tokens.drain(..rows).collect();
            let inputs = [self.fusion.states(rows, &job.take(rows))?];
            let work = Work::new(job.sequence, &tokens, LogitRows::None).with_inputs(&inputs);
            self.engine.step(&[work], None)?;
        }
        Ok(())
    }

    /// The job's chain, if all but the last token of it was seen; what is left of its rows goes into the first step.
    fn chain<'a>(&mut self, request: &DraftRequest<'a>) -> Result<Option<Chain<'a>>, EngineError> {
        let Some(job) = self.jobs.get(&request.job) else { return Ok(None) };
        let context = self.engine.options().context;
        let held = self.engine.len(job.sequence)? + job.tokens.len();
        let depth = request.depth.min(request.room);
        let whole = job.next + 1 == request.history.len() && job.rows > 0;
        if !whole || depth == 0 || held + depth > context {
            return Ok(None);
        }
        let sequence = job.sequence;
        let (history, nodes) = (request.history.to_vec(), DraftTree::new());
        Ok(Some(Chain { request: *request, sequence, history, state: [Vec::new()], nodes, ended: false }))
    }

    /// Rows of the target's states, the last one with the token that was drawn last: the first token of each chain.
    fn begin(&mut self, chains: &mut [Chain<'_>]) -> Result<(), EngineError> {
        let rows = |jobs: &HashMap<JobId, Followed>, chain: &Chain<'_>| {
            jobs.get(&chain.request.job).map_or(1, |job| job.tokens.len() + 1)
        };
        let all: usize = chains.iter().map(|chain| rows(&self.jobs, chain)).sum();
        if all > self.engine.options().rows {
            chains.iter().try_for_each(|chain| self.catch_up(chain.request.job, 1))?;
        }
        let mut parts = Vec::new();
        for chain in chains.iter_mut() {
            let Some(job) = self.jobs.get_mut(&chain.request.job) else { continue };
            let mut tokens = std::mem::take(&mut job.tokens);
            tokens.push(chain.history.last().copied().unwrap_or_default());
            let states = self.fusion.states(tokens.len(), &job.take(tokens.len()))?;
            parts.push((chain.sequence, tokens, [states]));
        }
        let work: Vec<Work<'_>> = parts
            .iter()
            .map(|(sequence, tokens, states)| {
                Work::new(*sequence, tokens, LogitRows::Last).with_inputs(states)
            })
            .collect();
        let drawn = self.compute(&work)?;
        chains.iter_mut().zip(drawn).for_each(|(chain, guess)| chain.draw(guess));
        Ok(())
    }

    /// One further token of each chain that wants one; `false` where none does.
    fn extend(&mut self, chains: &mut [Chain<'_>]) -> Result<bool, EngineError> {
        let mut active: Vec<&mut Chain<'_>> = chains.iter_mut().filter(|chain| chain.goes_on()).collect();
        if active.is_empty() {
            return Ok(false);
        }
        active.iter_mut().for_each(|chain| chain.grow());
        let work: Vec<Work<'_>> = active
            .iter()
            .map(|chain| {
                Work::new(chain.sequence, &[], LogitRows::None)
                    .with_tree(&chain.nodes)
                    .with_inputs(&chain.state)
            })
            .collect();
        let drawn = self.compute(&work)?;
        active.into_iter().zip(drawn).for_each(|(chain, guess)| chain.draw(guess));
        Ok(true)
    }

    /// What the last row of each piece of work gives.
    fn compute(&mut self, work: &[Work<'_>]) -> Result<Vec<Guess>, EngineError> {
        let width = self.engine.vocabulary();
        let logits = self.engine.step(work, None)?;
        let logits: Vec<Vec<f32>> = logits.chunks(width).map(|row| self.head.of_all_tokens(row)).collect();
        let states = self.engine.output(0)?;
        let states = states.chunks(self.head.width()).map(<[f32]>::to_vec);
        Ok(logits.into_iter().zip(states).map(|(logits, state)| Guess { logits, state }).collect())
    }
}

impl Drafter for EagleDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn taps(&self) -> &[String] {
        self.head.taps()
    }

    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        seen.iter().filter(|seen| !seen.tokens.is_empty()).try_for_each(|seen| self.take(seen))
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        let mut trees = vec![DraftTree::new(); requests.len()];
        let (mut numbers, mut chains) = (Vec::new(), Vec::new());
        let options = self.engine.options();
        for (number, request) in requests.iter().enumerate() {
            // Jobs for which a step has no room go without.
            if chains.len() < options.rows.min(options.logit_rows)
                && let Some(chain) = self.chain(request)?
            {
                numbers.push(number);
                chains.push(chain);
            }
        }
        if chains.is_empty() {
            return Ok(trees);
        }
        self.begin(&mut chains)?;
        while self.extend(&mut chains)? {}
        for (number, chain) in numbers.into_iter().zip(chains) {
            self.engine.accept(chain.sequence, &[])?;
            trees[number] = DraftTree::chain(chain.drafted().to_vec());
        }
        Ok(trees)
    }

    fn forget(&mut self, job: JobId) {
        let Some(job) = self.jobs.remove(&job) else { return };
        // Only a sequence that is not there cannot be removed. What others have computed of the same tokens may begin elsewhere in
        // a text, so nothing is kept for them.
        let _ = self.engine.remove_sequence(job.sequence);
        self.engine.forget();
    }
}

fn name(head: &Eagle3) -> String {
    format!("eagle3 head of {} taps", head.taps().len())
}

/// The plan of a head's layer, and its weights.
fn planned(head: &Eagle3, format: KvFormat) -> Result<(Arc<Plan>, Vec<Bytes>), EngineError> {
    let recording = head.record(format).map_err(|error| failed(&name(head), error))?;
    let weights = head.weights_for(&recording);
    Ok((Arc::new(Plan::compile(recording, Passes::ALL)), weights))
}

fn failed(drafter: &str, why: impl ToString) -> EngineError {
    EngineError::Drafter { drafter: drafter.to_owned(), why: why.to_string() }
}
