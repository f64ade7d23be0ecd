//! What followed the last tokens where they stood before: the draft of texts that repeat themselves or their prompt.
//!
//! Of all earlier places that end like the history the one that shares the longest end is taken; of equals the latest.

use std::collections::HashMap;

use super::{DraftRequest, DraftTree, Drafter};
use crate::error::EngineError;
use crate::scheduler::JobId;

/// Tokens by which places are found: shorter ends say too little.
const KEY: usize = 2;
/// The longest end that is compared.
const LONGEST: usize = 32;
/// Places that are looked at, the latest first.
const PLACES: usize = 32;
/// There is no earlier place.
const NONE: u32 = u32::MAX;

/// Drafts from the history alone: no model, microseconds for a draft.
#[derive(Debug, Default)]
pub struct Ngram {
    jobs: HashMap<JobId, Index>,
}

impl Ngram {
    /// Knows no job yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Drafter for Ngram {
    fn name(&self) -> &str {
        "ngram"
    }

    fn branches(&self) -> bool {
        true
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<DraftTree>, EngineError> {
        let draft = |r: &DraftRequest<'_>| {
            let index = self.jobs.entry(r.job).or_default();
            index.take(r.history);
            index.draft(r.history, (r.depth, r.room), r.branches)
        };
        Ok(requests.iter().map(draft).collect())
    }

    fn forget(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }
}

/// Where each pair of tokens stands in a history.
#[derive(Debug, Default)]
struct Index {
    /// The last place behind each pair.
    last: HashMap<[u32; KEY], u32>,
    /// By place: the place before it behind the same pair.
    before: Vec<u32>,
}

/// A place behind an end that the history has too.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// Tokens before it that are those at the end of the history.
    common: usize,
}

impl Index {
    /// Adds the places of a history that it lacks: histories only grow.
    fn take(&mut self, history: &[u32]) {
        for at in self.before.len()..history.len() {
            let pair = at.checked_sub(KEY).and_then(|from| history[from..at].try_into().ok());
            // Prompts of 2^32 tokens fit into no context.
            let here = u32::try_from(at).unwrap_or(NONE);
            self.before.push(pair.and_then(|pair: [u32; KEY]| self.last.insert(pair, here)).unwrap_or(NONE));
        }
    }

    /// Places whose ends are the history's, the longest first.
    fn places(&self, history: &[u32]) -> Vec<Place> {
        let pair = history.len().checked_sub(KEY).and_then(|from| history[from..].try_into().ok());
        let Some(mut at) = pair.and_then(|pair: [u32; KEY]| self.last.get(&pair).copied()) else {
            return Vec::new();
        };
        let mut places = Vec::new();
        while at != NONE && places.len() < PLACES {
            let here = at as usize;
            let ends = history[..here].iter().rev().zip(history.iter().rev());
            let common = ends.take(LONGEST).take_while(|(a, b)| a == b).count();
            places.push(Place { at: here, common });
            at = self.before[here];
        }
        places.sort_by_key(|place| std::cmp::Reverse(place.common));
        places
    }

    fn draft(&self, history: &[u32], (depth, room): (usize, usize), branches: bool) -> DraftTree {
        let mut tree = DraftTree::new();
        let places = self.places(history);
        let Some(&first) = places.first() else { return tree };
        add(&mut tree, history, first, (depth, room));
        // What else followed, if there is room for it.
        let starts = |place: &&Place| history[place.at] != history[first.at];
        if let Some(&other) = places.iter().filter(|_| branches).find(starts) {
            add(&mut tree, history, other, (depth, room));
        }
        tree
    }
}

/// Adds what follows a place, as a line of its own. The fewer tokens speak for it, the fewer are added.
fn add(tree: &mut DraftTree, history: &[u32], place: Place, (depth, room): (usize, usize)) {
    let believed = if place.common <= KEY { KEY } else { 4 * (place.common - KEY) };
    let mut line: Vec<u32> = Vec::new();
    let mut parent = None;
    for i in 0..depth.min(believed).min(room - tree.len().min(room)) {
        // Behind the end of the history the draft goes on as it began.
        let at = place.at + i;
        let token = history.get(at).copied().unwrap_or_else(|| line[at - history.len()]);
        line.push(token);
        parent = Some(tree.push(token, parent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sampler, Sampling};

    fn draft(drafter: &mut Ngram, history: &[u32], depth: usize, room: usize) -> DraftTree {
        shaped(drafter, history, (depth, room), true)
    }

    fn shaped(
        drafter: &mut Ngram,
        history: &[u32],
        (depth, room): (usize, usize),
        branches: bool,
    ) -> DraftTree {
        let sampler = Sampler::new(Sampling::default()).unwrap();
        let request =
            DraftRequest { job: JobId(1), history, sampler: &sampler, draws: 0, room, depth, branches };
        drafter.draft(&[request]).unwrap().remove(0)
    }

    #[test]
    fn what_followed_the_longest_equal_end_is_drafted() {
        let mut drafter = Ngram::new();
        // `2 3` stands three times: behind 1, behind 9 and behind 1 again.
        let history = [1, 2, 3, 4, 5, 6, 9, 2, 3, 7, 8, 0, 1, 2, 3];
        assert_eq!(draft(&mut drafter, &history, 4, 4), DraftTree::chain(vec![4, 5, 6, 9]));
        let both = draft(&mut drafter, &history, 4, 8);
        assert_eq!(both.tokens, [4, 5, 6, 9, 7, 8]);
        assert_eq!(both.parents, [None, Some(0), Some(1), Some(2), None, Some(4)]);
        assert_eq!(shaped(&mut drafter, &history, (4, 8), false), DraftTree::chain(vec![4, 5, 6, 9]));
    }

    #[test]
    fn of_equal_ends_the_latest_counts_and_few_equal_tokens_give_short_drafts() {
        let history = [1, 2, 5, 6, 7, 3, 1, 2, 8, 6, 7, 9, 1, 2];
        assert_eq!(draft(&mut Ngram::new(), &history, 5, 2).tokens, [8, 6]);
        assert_eq!(draft(&mut Ngram::new(), &history, 5, 5).tokens, [8, 6, 5, 6]);
    }

    #[test]
    fn a_period_goes_on() {
        let history: Vec<u32> = [4, 5, 6].repeat(4);
        let expected: Vec<u32> = [4, 5, 6].repeat(3);
        assert_eq!(draft(&mut Ngram::new(), &history, 9, 9).tokens, expected);
    }

    #[test]
    fn histories_grow_token_by_token() {
        let text: Vec<u32> = (0..300).map(|i: u32| i * i % 7 + i % 3).collect();
        let mut grown = Ngram::new();
        for n in 0..text.len() {
            let found = draft(&mut grown, &text[..n], 6, 10);
            assert_eq!(found, draft(&mut Ngram::new(), &text[..n], 6, 10), "{n}");
            assert!(found.len() <= 10 && found.is_tree());
        }
        grown.forget(JobId(1));
        assert!(grown.jobs.is_empty());
    }

    #[test]
    fn what_never_stood_before_gives_nothing() {
        let history: Vec<u32> = (0..50).collect();
        for n in 0..50 {
            assert!(draft(&mut Ngram::new(), &history[..n], 4, 4).is_empty());
        }
    }
}
