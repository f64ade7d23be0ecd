//! The tokens of one conversation and the pages that hold its cache.

use hf2q_plan::{Group, NO_PAGE, PAGE};

use crate::error::EngineError;
use crate::pages::PagePool;

/// Page tables of one sequence, one for each group.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Positions whose keys and values are stored.
    pub(crate) len: usize,
    /// By group: page of positions `PAGE·i ..`, or [`NO_PAGE`].
    pub(crate) tables: Vec<Vec<u32>>,
}

impl Sequence {
    pub(crate) fn new(groups: usize) -> Self {
        Self { len: 0, tables: vec![Vec::new(); groups] }
    }

    /// How many pages of `pool`'s group `more` further positions need.
    pub(crate) fn pages_needed(&self, group: usize, more: usize) -> usize {
        (self.len + more).div_ceil(PAGE).saturating_sub(self.tables[group].len())
    }

    /// Gives every position below `len + more` of group `group` a page.
    pub(crate) fn reserve(
        &mut self,
        group: usize,
        more: usize,
        pool: &mut PagePool,
    ) -> Result<(), EngineError> {
        for _ in 0..self.pages_needed(group, more) {
            self.tables[group].push(pool.take()?);
        }
        Ok(())
    }

    /// Returns pages that no later row can see: all their positions lie behind the window of position `len`.
    pub(crate) fn drop_behind_window(&mut self, index: usize, group: &Group, pool: &mut PagePool) {
        let Some(window) = group.window else { return };
        let first_seen = (self.len + 1).saturating_sub(window as usize);
        for page in self.tables[index].iter_mut().take(first_seen / PAGE) {
            if *page != NO_PAGE {
                pool.give(*page);
                *page = NO_PAGE;
            }
        }
    }

    /// Returns all pages of group `group`.
    pub(crate) fn release(&mut self, group: usize, pool: &mut PagePool) {
        for page in self.tables[group].drain(..) {
            if page != NO_PAGE {
                pool.give(page);
            }
        }
    }

    /// Slot of a position that has a page.
    pub(crate) fn slot(&self, group: usize, position: usize) -> u32 {
        let offset = u32::try_from(position % PAGE).expect("below the page size");
        self.tables[group][position / PAGE] * PAGE as u32 + offset
    }
}
