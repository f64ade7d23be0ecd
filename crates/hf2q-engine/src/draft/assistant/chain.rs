//! One draft in the making.

use crate::draft::{DraftRequest, DraftTree};
use crate::engine::SequenceId;
use crate::scheduler::JobId;

/// Tokens that continue a job, each drawn as the job would draw it.
pub(super) struct Chain<'a> {
    request: DraftRequest<'a>,
    pub(super) sequence: SequenceId,
    /// Whether only one position of the job was seen.
    pub(super) is_first: bool,
    /// What was drawn, the draft at its end.
    history: Vec<u32>,
    /// Goes with the last token.
    hidden: Vec<f32>,
    ended: bool,
}

impl<'a> Chain<'a> {
    /// Nothing is drafted yet; `hidden` is that of the last position that the target has computed.
    pub(super) fn new(
        request: DraftRequest<'a>,
        (sequence, is_first): (SequenceId, bool),
        hidden: Vec<f32>,
    ) -> Self {
        let history = request.history.to_vec();
        Self { request, sequence, is_first, history, hidden, ended: false }
    }

    pub(super) fn job(&self) -> JobId {
        self.request.job
    }

    pub(super) fn last(&self) -> u32 {
        self.history.last().copied().unwrap_or(0)
    }

    pub(super) fn hidden(&self) -> &[f32] {
        &self.hidden
    }

    /// Whether it has so many tokens and is to get one more.
    pub(super) fn wants(&self, level: usize) -> bool {
        let len = self.history.len() - self.request.history.len();
        !self.ended && len == level && level < self.request.depth.min(self.request.room)
    }

    /// Draws a token, with which `hidden` goes from now on.
    pub(super) fn push(&mut self, logits: &[f32], hidden: &[f32]) {
        match self.request.sampler.sample_allowed(logits, &self.history, self.request.draws, None) {
            Ok(drawn) => self.history.push(drawn.token),
            // A draft may end anywhere.
            Err(_) => self.ended = true,
        }
        self.hidden.clear();
        self.hidden.extend_from_slice(hidden);
    }

    pub(super) fn tree(&self) -> DraftTree {
        DraftTree::chain(self.history[self.request.history.len()..].to_vec())
    }
}
