//! The tokens of one conversation and the pages that hold its cache.

use hf2q_plan::{Group, NO_PAGE, PAGE};

use crate::engine::Tree;
use crate::error::EngineError;
use crate::pages::PagePool;

/// Tokens and page tables of one sequence. Slots are written once, in ascending position: whoever else holds a page
/// sees only positions that were written before. The last page, where it is partly filled, is held by one sequence alone.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Tokens whose keys and values are stored.
    pub(crate) tokens: Vec<u32>,
    /// By group: page of positions `PAGE·i ..`, or [`NO_PAGE`].
    pub(crate) tables: Vec<Vec<u32>>,
    /// What may follow and is computed already.
    pub(crate) tree: Option<Tree>,
}

impl Sequence {
    pub(crate) fn new(groups: usize) -> Self {
        Self { tokens: Vec::new(), tables: vec![Vec::new(); groups], tree: None }
    }

    /// Positions whose keys and values are stored.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Levels of its tree.
    fn depth(&self) -> usize {
        self.tree.as_ref().map_or(0, Tree::depth)
    }

    /// How many pages of `pool`'s group `more` further positions need, and those of the tree behind them.
    pub(crate) fn pages_needed(&self, group: usize, more: usize) -> usize {
        (self.len() + more + self.depth()).div_ceil(PAGE).saturating_sub(self.tables[group].len())
    }

    /// How many spare pages of group `group` the tree lacks.
    pub(crate) fn spare_needed(&self, group: usize) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.spare_pages().saturating_sub(tree.spare[group].len()))
    }

    /// Gives every position below `len + more` of group `group` a page, and the tree behind them what it needs.
    pub(crate) fn reserve(
        &mut self,
        group: usize,
        more: usize,
        pool: &mut PagePool,
    ) -> Result<(), EngineError> {
        for _ in 0..self.pages_needed(group, more) {
            self.tables[group].push(pool.take()?);
        }
        let spare = self.spare_needed(group);
        if let Some(tree) = &mut self.tree {
            for _ in 0..spare {
                tree.spare[group].push(pool.take()?);
            }
        }
        Ok(())
    }

    /// Lets go of pages that no later row can see, and that the row at the last position cannot see either: a prompt
    /// that is given again is computed from there.
    pub(crate) fn drop_behind_window(&mut self, index: usize, group: &Group, pool: &mut PagePool) {
        let dropped = first_page(group, self.len().saturating_sub(1));
        for page in self.tables[index].iter_mut().take(dropped) {
            if *page != NO_PAGE {
                pool.give(*page);
                *page = NO_PAGE;
            }
        }
    }

    /// Lets go of pages beyond those of what is stored, such as a step that failed has left.
    pub(crate) fn drop_reserved(&mut self, index: usize, pool: &mut PagePool) {
        let pages = (self.len() + self.depth()).div_ceil(PAGE).min(self.tables[index].len());
        self.tables[index].drain(pages..).filter(|&page| page != NO_PAGE).for_each(|page| pool.give(page));
    }

    /// Whether the rows from position `len` on find what they see of the positions before it.
    pub(crate) fn can_end(&self, index: usize, group: &Group, len: usize) -> bool {
        let seen = first_page(group, len)..len.div_ceil(PAGE);
        len <= self.len() && seen.into_iter().all(|page| self.tables[index][page] != NO_PAGE)
    }

    /// Lets go of all pages.
    pub(crate) fn release(&mut self, pools: &mut [PagePool]) {
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            table.drain(..).filter(|&page| page != NO_PAGE).for_each(|page| pool.give(page));
        }
    }

    /// Slot of a position that has a page.
    pub(crate) fn slot(&self, group: usize, position: usize) -> u32 {
        let offset = u32::try_from(position % PAGE).expect("below the page size");
        self.tables[group][position / PAGE] * PAGE as u32 + offset
    }
}

/// The first page that a row at `position` sees.
pub(crate) fn first_page(group: &Group, position: usize) -> usize {
    group.span.first(position) / PAGE
}
