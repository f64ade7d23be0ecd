//! Compiled grammars, kept for requests to come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::Matcher;

/// Bytes of grammar text that are kept; what is made of it is some hundred times as large.
const MOST_TEXT: usize = 1 << 20;

/// A grammar at its start. Every answer begins with a copy of it, so that no answer feels what others did.
pub(crate) struct Compiled {
    start: Mutex<Matcher>,
    size: usize,
}

impl Compiled {
    pub(crate) fn new(start: Matcher, size: usize) -> Self {
        Self { start: Mutex::new(start), size }
    }

    pub(crate) fn start(&self) -> Matcher {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).deep_clone()
    }
}

/// Grammars by their text; the longest unused go first.
#[derive(Default)]
pub(crate) struct Cache {
    kept: HashMap<String, (Arc<Compiled>, u64)>,
    clock: u64,
    size: usize,
}

impl Cache {
    pub(crate) fn get(&mut self, key: &str) -> Option<Arc<Compiled>> {
        self.clock += 1;
        let (compiled, used) = self.kept.get_mut(key)?;
        *used = self.clock;
        Some(compiled.clone())
    }

    pub(crate) fn insert(&mut self, key: String, compiled: Arc<Compiled>) {
        self.clock += 1;
        self.size += compiled.size;
        if let Some((replaced, _)) = self.kept.insert(key, (compiled, self.clock)) {
            self.size -= replaced.size;
        }
        while self.size > MOST_TEXT && self.kept.len() > 1 {
            let oldest = self.kept.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some((removed, _)) = oldest.and_then(|key| self.kept.remove(&key)) else { return };
            self.size -= removed.size;
        }
    }
}
