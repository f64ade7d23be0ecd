//! The pool of pages of one group's caches.

use crate::error::EngineError;

/// Hands out page numbers; the memory itself belongs to the program.
#[derive(Debug)]
pub(crate) struct PagePool {
    group: String,
    free: Vec<u32>,
    pages: usize,
}

impl PagePool {
    pub(crate) fn new(group: &str, pages: usize) -> Self {
        let last = u32::try_from(pages).expect("a pool has fewer than 2^32 pages");
        Self { group: group.to_owned(), free: (0..last).rev().collect(), pages }
    }

    pub(crate) fn take(&mut self) -> Result<u32, EngineError> {
        self.free.pop().ok_or_else(|| self.exhausted())
    }

    pub(crate) fn exhausted(&self) -> EngineError {
        EngineError::OutOfPages { group: self.group.clone(), pages: self.pages }
    }

    pub(crate) fn give(&mut self, page: u32) {
        self.free.push(page);
    }

    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }
}
