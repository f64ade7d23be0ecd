//! The pool of pages of one group's caches.

use crate::error::EngineError;

/// Hands out page numbers and counts who holds them; the memory itself belongs to the program.
#[derive(Debug)]
pub(crate) struct PagePool {
    group: String,
    free: Vec<u32>,
    holders: Vec<Holders>,
    /// How many nodes of the prefix tree hold and no sequence does.
    idle: usize,
}

/// Who holds a page. It is free when nobody does.
#[derive(Clone, Copy, Debug, Default)]
struct Holders {
    sequences: u32,
    /// Nodes of the prefix tree.
    nodes: u32,
}

impl PagePool {
    pub(crate) fn new(group: &str, pages: usize) -> Self {
        let last = u32::try_from(pages).expect("a pool has fewer than 2^32 pages");
        let holders = vec![Holders::default(); pages];
        Self { group: group.to_owned(), free: (0..last).rev().collect(), holders, idle: 0 }
    }

    /// A free page, for a sequence.
    pub(crate) fn take(&mut self) -> Result<u32, EngineError> {
        let page = self.free.pop().ok_or_else(|| self.exhausted())?;
        self.holders[page as usize].sequences = 1;
        Ok(page)
    }

    pub(crate) fn exhausted(&self) -> EngineError {
        EngineError::OutOfPages { group: self.group.clone(), pages: self.holders.len() }
    }

    /// One more sequence holds a page.
    pub(crate) fn share(&mut self, page: u32) {
        self.change(page, |h| h.sequences += 1);
    }

    /// A sequence lets go of a page.
    pub(crate) fn give(&mut self, page: u32) {
        self.change(page, |h| h.sequences -= 1);
    }

    /// A node of the prefix tree holds a page.
    pub(crate) fn keep(&mut self, page: u32) {
        self.change(page, |h| h.nodes += 1);
    }

    /// A node of the prefix tree lets go of a page.
    pub(crate) fn forget(&mut self, page: u32) {
        self.change(page, |h| h.nodes -= 1);
    }

    /// Whether somebody beside one sequence holds the page.
    pub(crate) fn is_shared(&self, page: u32) -> bool {
        let Holders { sequences, nodes } = self.holders[page as usize];
        sequences + nodes > 1
    }

    /// Whether no sequence holds the page.
    pub(crate) fn is_idle(&self, page: u32) -> bool {
        self.holders[page as usize].sequences == 0
    }

    /// Free pages.
    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    /// Pages that only nodes of the prefix tree hold.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Pages that sequences hold.
    pub(crate) fn in_use(&self) -> usize {
        self.holders.len() - self.free.len() - self.idle
    }

    /// All pages.
    pub(crate) fn len(&self) -> usize {
        self.holders.len()
    }

    /// Changes who holds a page; it is held by somebody before.
    fn change(&mut self, page: u32, by: impl FnOnce(&mut Holders)) {
        let holders = &mut self.holders[page as usize];
        let before = holders.sequences == 0;
        by(holders);
        let now = holders.sequences == 0;
        if now && holders.nodes == 0 {
            self.free.push(page);
        }
        let idle = now && holders.nodes > 0;
        self.idle = self.idle + usize::from(idle) - usize::from(before);
    }
}
