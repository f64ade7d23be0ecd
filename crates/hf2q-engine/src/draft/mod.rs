//! Drafts: tokens that may follow, which the model computes in the step of the token before them.
//!
//! A [`Drafter`] guesses; the scheduler computes the guesses as further rows of an ordinary step, draws each token as it always
//! does, and goes on with the logits of a guess where it is what was drawn. So a drafter changes when tokens come, never
//! which.

mod assistant;

pub(crate) mod control;
mod eagle;
mod model;
mod ngram;
pub(crate) mod outcome;

use crate::error::EngineError;
use crate::sample::Sampler;
use crate::scheduler::JobId;

pub use assistant::AssistantDrafter;
pub use eagle::EagleDrafter;
pub use model::ModelDrafter;
pub use ngram::Ngram;

/// Tokens that may follow a sequence. Several nodes may continue the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftTree {
    /// Token of each node.
    pub tokens: Vec<u32>,
    /// Node that each node continues, an earlier one; `None`: it continues the last token of the history.
    pub parents: Vec<Option<usize>>,
}

impl DraftTree {
    /// Without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Each token continues the one before.
    pub fn chain(tokens: Vec<u32>) -> Self {
        let parents = (0..tokens.len()).map(|i| i.checked_sub(1)).collect();
        Self { tokens, parents }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds a node; returns its number.
    pub fn push(&mut self, token: u32, parent: Option<usize>) -> usize {
        self.tokens.push(token);
        self.parents.push(parent);
        self.tokens.len() - 1
    }

    /// The node with this token that continues `parent`.
    pub fn child(&self, parent: Option<usize>, token: u32) -> Option<usize> {
        (0..self.len()).find(|&i| self.parents[i] == parent && self.tokens[i] == token)
    }

    /// Whether there is a parent for every token, and each comes before its children.
    pub(crate) fn is_tree(&self) -> bool {
        let earlier = |(i, parent): (usize, &Option<usize>)| parent.is_none_or(|p| p < i);
        self.parents.len() == self.tokens.len() && self.parents.iter().enumerate().all(earlier)
    }

    /// Those nodes that are wanted, and what they continue is.
    pub(crate) fn keep(&self, wanted: impl Fn(usize) -> bool) -> Self {
        let mut kept = Self::new();
        let mut numbers: Vec<Option<usize>> = Vec::with_capacity(self.len());
        for i in 0..self.len() {
            let above = self.parents[i].map(|p| numbers[p]);
            let number = match above {
                Some(None) => None,
                _ if !wanted(i) => None,
                above => Some(kept.push(self.tokens[i], above.flatten())),
            };
            numbers.push(number);
        }
        kept
    }

    /// The first `room` nodes, as far as they are on the first `depth` levels, are tokens of the vocabulary and are there once.
    pub(crate) fn within(&self, depth: usize, room: usize, vocabulary: usize) -> Self {
        let depths = self.depths();
        let known = |i: usize| (self.tokens[i] as usize) < vocabulary;
        let first = |i: usize| self.child(self.parents[i], self.tokens[i]) == Some(i);
        self.keep(|i| i < room && depths[i] <= depth && known(i) && first(i))
    }

    /// Whether a node is the first of those that continue its parent.
    pub(crate) fn is_first(&self, node: usize) -> bool {
        !self.parents[..node].contains(&self.parents[node])
    }

    /// Whether others continue a node's parent, or the history, too.
    pub(crate) fn has_siblings(&self, parent: Option<usize>) -> bool {
        self.parents.iter().filter(|&&p| p == parent).count() > 1
    }

    /// Levels below a node, or of the whole tree.
    pub(crate) fn height(&self, node: Option<usize>) -> usize {
        // By node how far it lies below the one that was asked for.
        let mut below: Vec<Option<usize>> = Vec::with_capacity(self.len());
        for &parent in &self.parents {
            let above =
                if parent == node { Some(0) } else { parent.and_then(|p| below.get(p).copied()).flatten() };
            below.push(above.map(|levels| levels + 1));
        }
        below.into_iter().flatten().max().unwrap_or(0)
    }

    /// Level of each node: 1 for those that continue the history.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.len());
        for parent in &self.parents {
            let above = parent.and_then(|p| depths.get(p).copied()).unwrap_or(0);
            depths.push(above + 1);
        }
        depths
    }
}

/// A job that wants a draft.
#[derive(Clone, Copy, Debug)]
pub struct DraftRequest<'a> {
    /// Keys what the drafter remembers.
    pub job: JobId,
    /// Prompt and drawn tokens. The last one is drawn, but the target has not computed it yet.
    pub history: &'a [u32],
    /// Draws the job's tokens. A drafter with logits draws by it too: equal keys make equal draws likely.
    pub sampler: &'a Sampler,
    /// The job's part of the key, beside the position.
    pub draws: u64,
    /// Most nodes.
    pub room: usize,
    /// Deepest level that is wanted.
    pub depth: usize,
    /// Whether several nodes may continue the same one. `false`: what is no chain is cut to one.
    pub branches: bool,
}

/// Rows that a step of the target has computed and that stay, of one job: ascending, without gaps inside one call.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Whose they are.
    pub job: JobId,
    /// Position of the first.
    pub from: usize,
    /// Token of each.
    pub tokens: &'a [u32],
    /// Of each [tap](Drafter::taps) `[rows, width]`.
    pub features: &'a [Vec<f32>],
}

/// Guesses what follows.
///
/// A job whose prompt came from caches has positions that a drafter never sees, and one that lost its pages may see positions
/// again.
pub trait Drafter: Send {
    /// For people and metrics, such as `ngram`.
    fn name(&self) -> &str;

    /// Names of the target's operations whose output rows it wants to [see](Drafter::seen). The target must be recorded so that
    /// it [keeps](hf2q_plan::Recording::keep) them, in this order; [`crate::Engine::output_of_rows`] reads them then.
    fn taps(&self) -> &[String] {
        &[]
    }

    /// Whether the target must compute what is tapped of all rows. Otherwise rows without logits may lack what is behind the
    /// last stored keys and values: they have zeros for it.
    fn needs_all_rows(&self) -> bool {
        !self.taps().is_empty()
    }

    /// Whether it knows alternatives: trees that are not chains.
    fn branches(&self) -> bool {
        false
    }

    /// What the target has computed since the last call.
    ///
    /// # Errors
    /// The drafter can no longer follow; it is not asked for these jobs again.
    fn seen(&mut self, seen: &[Seen<'_>]) -> Result<(), EngineError> {
        let _ = seen;
        Ok(())
    }

    /// A tree for each request, in their order; it may be empty.
    ///
    /// # Errors
    /// The drafter is not asked for these jobs again; they go on without drafts.
    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError>;

    /// The job has ended, or lost its pages.
    fn forget(&mut self, job: JobId) {
        let _ = job;
    }
}
