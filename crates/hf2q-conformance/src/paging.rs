//! Pages of the checks' own: shuffled, so that the order of a page table means nothing.

use std::collections::HashSet;

use hf2q_plan::{Group, GroupStep, NO_PAGE, PAGE, Row, SlotMove, Span, Step};

use crate::error::ConformanceError;
use crate::random::Random;

const PAGE_U32: u32 = PAGE as u32;

struct GroupPages {
    span: Span,
    pages: usize,
    free: Vec<u32>,
    /// By sequence.
    tables: Vec<Vec<u32>>,
    /// Pages for rows that another row keeps from their place.
    spare: Vec<u32>,
}

/// The pages of all groups and the page tables of a fixed number of sequences.
pub(crate) struct Pages {
    groups: Vec<GroupPages>,
    random: Random,
}

impl Pages {
    pub(crate) fn new(groups: &[Group], pages: usize, (sequences, mut random): (usize, Random)) -> Self {
        let one = |g: &Group| {
            let mut free: Vec<u32> = (0..pages as u32).collect();
            random.shuffle(&mut free);
            GroupPages { span: g.span, pages, free, tables: vec![vec![]; sequences], spare: vec![] }
        };
        let groups = groups.iter().map(one).collect();
        Self { groups, random }
    }

    /// A step of `rows`. The first row of a position is stored at its place, unless it is in `apart`; the others are
    /// stored on spare pages.
    pub(crate) fn step(
        &mut self,
        rows: &[Row],
        logit_rows: &[u32],
        apart: &HashSet<usize>,
    ) -> Result<Step, ConformanceError> {
        let mut taken = HashSet::new();
        let in_place: Vec<bool> = rows
            .iter()
            .enumerate()
            .map(|(i, r)| !apart.contains(&i) && taken.insert((r.sequence, r.position)))
            .collect();
        let mut groups = vec![];
        for g in 0..self.groups.len() {
            groups.push(self.group_step(g, rows, &in_place)?);
        }
        Ok(Step::new(rows.to_vec(), groups, logit_rows.to_vec())?)
    }

    fn group_step(
        &mut self,
        g: usize,
        rows: &[Row],
        in_place: &[bool],
    ) -> Result<GroupStep, ConformanceError> {
        let mut slots = vec![];
        let mut spare = 0;
        for (row, &in_place) in rows.iter().zip(in_place) {
            if in_place {
                slots.push(self.place(g, row.sequence, row.position)?);
                continue;
            }
            if spare == self.groups[g].spare.len() * PAGE {
                let page = self.take(g)?;
                self.groups[g].spare.push(page);
            }
            slots.push(self.groups[g].spare[spare / PAGE] * PAGE_U32 + (spare % PAGE) as u32);
            spare += 1;
        }
        let tables = &self.groups[g].tables;
        let pages_per_sequence = tables.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut page_tables = vec![];
        for table in tables {
            page_tables.extend_from_slice(table);
            page_tables.resize(page_tables.len() + pages_per_sequence - table.len(), NO_PAGE);
        }
        Ok(GroupStep { slots, page_tables, pages_per_sequence })
    }

    /// The slot of a position in its page table; gives it a page if it has none.
    fn place(&mut self, g: usize, sequence: u32, position: u32) -> Result<u32, ConformanceError> {
        let page_index = (position / PAGE_U32) as usize;
        let len = self.groups[g].tables[sequence as usize].len();
        if len <= page_index {
            // Only the last may be new: positions are filled in order.
            self.groups[g].tables[sequence as usize].resize(page_index + 1, NO_PAGE);
        }
        if self.groups[g].tables[sequence as usize][page_index] == NO_PAGE {
            self.groups[g].tables[sequence as usize][page_index] = self.take(g)?;
        }
        Ok(self.groups[g].tables[sequence as usize][page_index] * PAGE_U32 + position % PAGE_U32)
    }

    fn take(&mut self, g: usize) -> Result<u32, ConformanceError> {
        let pages = self.groups[g].pages;
        self.groups[g].free.pop().ok_or(ConformanceError::Pages { group: g, pages })
    }

    fn give(&mut self, g: usize, page: u32) {
        let free = &mut self.groups[g].free;
        free.push(page);
        let (last, other) = (free.len() - 1, self.random.below(free.len()));
        free.swap(last, other);
    }

    /// By group: the moves that bring rows of a step to their places.
    pub(crate) fn settle(
        &mut self,
        step: &Step,
        rows: &[usize],
    ) -> Result<Vec<Vec<SlotMove>>, ConformanceError> {
        let mut all = vec![];
        for g in 0..self.groups.len() {
            let mut moves = vec![];
            for &i in rows {
                let from = step.groups[g].slots[i];
                let to = self.place(g, step.rows[i].sequence, step.rows[i].position)?;
                if from != to {
                    moves.push(SlotMove { from, to });
                }
            }
            all.push(moves);
        }
        Ok(all)
    }

    /// Returns the spare pages.
    pub(crate) fn release_spare(&mut self) {
        for g in 0..self.groups.len() {
            for page in std::mem::take(&mut self.groups[g].spare) {
                self.give(g, page);
            }
        }
    }

    /// Returns pages that no row at position `len` or later sees.
    pub(crate) fn drop_behind_window(&mut self, sequence: usize, len: usize) {
        for g in 0..self.groups.len() {
            let first_seen = self.groups[g].span.first(len);
            let table = &mut self.groups[g].tables[sequence];
            let hidden: Vec<u32> = table
                .iter_mut()
                .take(first_seen / PAGE)
                .map(|page| std::mem::replace(page, NO_PAGE))
                .filter(|&page| page != NO_PAGE)
                .collect();
            for page in hidden {
                self.give(g, page);
            }
        }
    }

    /// Ends a sequence; its place in the page tables is free for another.
    pub(crate) fn clear(&mut self, sequence: usize) {
        for g in 0..self.groups.len() {
            for page in std::mem::take(&mut self.groups[g].tables[sequence]) {
                if page != NO_PAGE {
                    self.give(g, page);
                }
            }
        }
    }
}
