//! Merging neighbouring pieces, best first, until no rule applies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::TextError;
use crate::vocab::{Spelling, Vocab, unescape};

/// Decides which neighbours may merge.
pub(crate) trait Rules {
    /// The rank of merging `pair`, whose left piece has `left` bytes; smaller merges first.
    fn rank(&self, vocab: &Vocab, pair: &[u8], left: usize) -> Option<u32>;
}

/// Rules by score (SentencePiece): any two pieces whose joint text is a token; higher scores merge first.
pub(crate) struct Scores {
    ranks: Vec<u32>,
}

impl Scores {
    /// Takes one score per token.
    ///
    /// # Errors
    /// A score that is not a number, or a list of another length.
    pub(crate) fn new(scores: &[f32], tokens: &[String]) -> Result<Self, TextError> {
        let expected = tokens.len();
        if scores.len() != expected {
            return Err(TextError::Length { key: "tokenizer.ggml.scores", found: scores.len(), expected });
        }
        if let Some(id) = scores.iter().position(|s| s.is_nan()) {
            return Err(TextError::Token {
                id,
                text: tokens[id].clone(),
                reason: "its score is not a number",
            });
        }
        Ok(Self { ranks: scores.iter().map(|s| descending(*s)).collect() })
    }
}

/// Maps floats to integers so that greater floats give smaller integers.
fn descending(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { bits } else { !(bits | 0x8000_0000) }
}

impl Rules for Scores {
    fn rank(&self, vocab: &Vocab, pair: &[u8], _: usize) -> Option<u32> {
        vocab.find(pair).map(|id| self.ranks[id as usize])
    }
}

/// Rules in a list (byte-pair encoding), grouped by the token that they make.
pub(crate) struct Merges {
    /// Rules that make token `i` are `rules[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy)]
struct Rule {
    left: u32,
    rank: u32,
}

impl Merges {
    /// Reads rules of the form `left right`. A rule that makes no token of the vocabulary is left out: applying it
    /// would end in byte tokens.
    ///
    /// # Errors
    /// A rule without two parts.
    pub(crate) fn new(merges: &[String], vocab: &Vocab, spelling: Spelling) -> Result<Self, TextError> {
        let mut made = Vec::with_capacity(merges.len());
        let mut pair = Vec::new();
        let mut last: Option<u32> = None;
        for (index, text) in merges.iter().enumerate() {
            // A space that is the first character belongs to the left piece.
            let cut = text.as_bytes().iter().skip(1).position(|b| *b == b' ').map(|i| i + 1);
            let cut = cut.filter(|c| c + 1 < text.len());
            let cut = cut.ok_or_else(|| TextError::Merge { index, text: text.clone() })?;
            pair.clear();
            unescape(&text[..cut], spelling, &mut pair);
            let left = pair.len() as u32;
            unescape(&text[cut + 1..], spelling, &mut pair);
            // Rules mostly stand in the order of the tokens that they make, which saves the search.
            let guess = last.into_iter().flat_map(|id| [id, id + 1]).find(|id| vocab.is_found(*id, &pair));
            last = guess.or_else(|| vocab.find(&pair));
            made.push((last, left));
        }
        Ok(Self::group(&made, vocab.len()))
    }

    fn group(made: &[(Option<u32>, u32)], tokens: usize) -> Self {
        let mut starts = vec![0u32; tokens + 1];
        for (id, _) in made {
            if let Some(id) = id {
                starts[*id as usize + 1] += 1;
            }
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut rules = vec![Rule { left: 0, rank: 0 }; starts[tokens] as usize];
        for (rank, (id, left)) in made.iter().enumerate() {
            if let Some(id) = id {
                let slot = &mut next[*id as usize];
                rules[*slot as usize] = Rule { left: *left, rank: rank as u32 };
                *slot += 1;
            }
        }
        Self { starts, rules }
    }
}

impl Rules for Merges {
    fn rank(&self, vocab: &Vocab, pair: &[u8], left: usize) -> Option<u32> {
        let id = vocab.find(pair)? as usize;
        let rules = &self.rules[self.starts[id] as usize..self.starts[id + 1] as usize];
        rules.iter().find(|r| r.left as usize == left).map(|r| r.rank)
    }
}

const END: u32 = u32::MAX;

/// A piece of the text; `len` is 0 once it has been merged into its left neighbour.
#[derive(Clone, Copy)]
struct Piece {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
}

/// A possible merge, best first: rank, then place in the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    len: u32,
}

/// Buffers that are reused from word to word.
#[derive(Default)]
pub(crate) struct Merger {
    pieces: Vec<Piece>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Merges `text`, which starts out as pieces of the given lengths, and hands each final piece to `emit`.
    /// Takes O(n log n) time. The text has less than 4 GiB.
    pub(crate) fn run(
        &mut self,
        (text, lengths): (&[u8], impl Iterator<Item = usize>),
        (rules, vocab): (&impl Rules, &Vocab),
        mut emit: impl FnMut(&[u8]),
    ) {
        self.start(lengths);
        for left in 1..self.pieces.len() as u32 {
            self.offer(text, (rules, vocab), left - 1);
        }
        while let Some(Reverse(best)) = self.queue.pop() {
            if self.is_current(best) {
                self.join(best.left);
                let prev = self.pieces[best.left as usize].prev;
                if prev != END {
                    self.offer(text, (rules, vocab), prev);
                }
                self.offer(text, (rules, vocab), best.left);
            }
        }
        let mut at = if self.pieces.is_empty() { END } else { 0 };
        while at != END {
            let piece = self.pieces[at as usize];
            emit(&text[piece.start as usize..][..piece.len as usize]);
            at = piece.next;
        }
    }

    fn start(&mut self, lengths: impl Iterator<Item = usize>) {
        self.pieces.clear();
        self.queue.clear();
        let mut start = 0;
        for len in lengths {
            let at = self.pieces.len() as u32;
            self.pieces.push(Piece { start, len: len as u32, prev: at.wrapping_sub(1), next: at + 1 });
            start += len as u32;
        }
        if let Some(last) = self.pieces.last_mut() {
            last.next = END;
        }
    }

    /// Queues the merge of a piece with its right neighbour, if a rule allows it.
    fn offer(&mut self, text: &[u8], (rules, vocab): (&impl Rules, &Vocab), left: u32) {
        let l = self.pieces[left as usize];
        if l.next == END {
            return;
        }
        let len = l.len + self.pieces[l.next as usize].len;
        let pair = &text[l.start as usize..][..len as usize];
        if let Some(rank) = rules.rank(vocab, pair, l.len as usize) {
            self.queue.push(Reverse(Candidate { rank, left, len }));
        }
    }

    /// Whether a queued merge still applies. Pieces only grow, so the two are unchanged if their length is.
    fn is_current(&self, c: Candidate) -> bool {
        let l = self.pieces[c.left as usize];
        l.len > 0 && l.next != END && l.len + self.pieces[l.next as usize].len == c.len
    }

    fn join(&mut self, left: u32) {
        let right = self.pieces[left as usize].next;
        let r = self.pieces[right as usize];
        self.pieces[right as usize].len = 0;
        let l = &mut self.pieces[left as usize];
        l.len += r.len;
        l.next = r.next;
        if r.next != END {
            self.pieces[r.next as usize].prev = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_sort_descending() {
        let scores = [f32::INFINITY, 3.5, 1e-9, 0.0, -1e-9, -2.0, -1e30, f32::NEG_INFINITY];
        let ranks: Vec<u32> = scores.iter().map(|s| descending(*s)).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
        assert_eq!(descending(0.0), descending(-0.0));
    }
}
