//! Which rows a matrix product reads and where it writes, with and without experts.

use std::ops::Range;

use hf2q_plan::ExpertInput;

use crate::call::{Context, Operand};

/// Rows `first ..` in order, or those that a router gave to one expert.
#[derive(Clone, Copy)]
pub(crate) enum Picks<'a> {
    /// Every row from this one on.
    All(usize),
    /// Entry `row · top_k + i` is the `i`-th choice of a row.
    Expert(&'a [u32], ExpertShape),
}

/// How an expert product reads and writes its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertShape {
    pub(crate) top_k: usize,
    pub(crate) input: ExpertInput,
    pub(crate) n_out: usize,
}

impl Picks<'_> {
    /// Row and columns of the activation that row `i` of the product reads.
    #[inline(always)]
    pub(crate) fn input(&self, i: usize, n_in: usize) -> (usize, Range<usize>) {
        match *self {
            Self::All(first) => (first + i, 0..n_in),
            Self::Expert(entries, shape) => {
                let entry = entries[i] as usize;
                let start = match shape.input {
                    ExpertInput::Shared => 0,
                    ExpertInput::PerExpert => entry % shape.top_k * n_in,
                };
                (entry / shape.top_k, start..start + n_in)
            }
        }
    }

    /// Row and first column of what row `i` of the product writes.
    #[inline(always)]
    pub(crate) fn output(&self, i: usize) -> (usize, usize) {
        match *self {
            Self::All(first) => (first + i, 0),
            Self::Expert(entries, shape) => {
                let entry = entries[i] as usize;
                (entry / shape.top_k, entry % shape.top_k * shape.n_out)
            }
        }
    }
}

/// Where the rows of each expert are listed, as u32 values: the number of experts that have rows, those experts, for
/// every expert the start of its list, the lists of entries, and the lists of rows of quantized activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupTable {
    /// Bytes from the start of the arena.
    pub(crate) at: usize,
    pub(crate) experts: usize,
    /// Most entries: rows · top_k.
    pub(crate) capacity: usize,
}

/// One expert's rows.
pub(crate) struct ExpertRows<'a> {
    pub(crate) expert: usize,
    pub(crate) entries: &'a [u32],
    /// `entries / top_k`: the rows that they belong to.
    pub(crate) rows: &'a [u32],
}

impl GroupTable {
    pub(crate) fn words(experts: usize, capacity: usize) -> usize {
        2 + 2 * experts + 2 * capacity
    }

    /// Expert number `i` of those that have rows.
    pub(crate) fn get<'a>(&self, cx: &Context<'a>, i: usize) -> Option<ExpertRows<'a>> {
        let words = cx.words(self.at, Self::words(self.experts, self.capacity));
        let (active, starts) = words[1..].split_at(self.experts);
        let (starts, lists) = starts.split_at(self.experts + 1);
        if i >= words[0] as usize {
            return None;
        }
        let expert = active[i] as usize;
        let range = starts[expert] as usize..starts[expert + 1] as usize;
        let (entries, rows) = lists.split_at(self.capacity);
        Some(ExpertRows { expert, entries: &entries[range.clone()], rows: &rows[range] })
    }

    /// Fills the table: entries of each expert ascend.
    pub(crate) fn fill(&self, cx: &Context<'_>, experts: Operand) {
        let words = cx.words_mut(self.at, Self::words(self.experts, self.capacity));
        let (count, rest) = words.split_at_mut(1);
        let (active, rest) = rest.split_at_mut(self.experts);
        let (starts, lists) = rest.split_at_mut(self.experts + 1);
        let (entries, entry_rows) = lists.split_at_mut(self.capacity);
        let (view, rows) = (cx.view(experts.place), cx.count(experts));
        starts.fill(0);
        for row in 0..rows {
            for &e in view.indices(row) {
                starts[e as usize + 1] += 1;
            }
        }
        count[0] = 0;
        for e in 0..self.experts {
            if starts[e + 1] > 0 {
                active[count[0] as usize] = index(e);
                count[0] += 1;
            }
            starts[e + 1] += starts[e];
        }
        // Each start moves to its end while entries are placed, which is the next expert's start.
        for row in 0..rows {
            for (i, &e) in view.indices(row).iter().enumerate() {
                let at = starts[e as usize] as usize;
                entries[at] = index(row * experts.place.width + i);
                entry_rows[at] = index(row);
                starts[e as usize] += 1;
            }
        }
        starts.copy_within(..self.experts, 1);
        starts[0] = 0;
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a step has fewer than 2^32 entries")
}
