//! Pages of all groups: who gets them, what is shared, what is kept.

use hf2q_plan::{Group, GroupId, NO_PAGE, PAGE, Program, Recording, SlotMove, Span};

use crate::error::EngineError;
use crate::needs;
use crate::options::{EngineOptions, WindowPolicy};
use crate::pages::PagePool;
use crate::prefix::PrefixTree;
use crate::sequence::Sequence;
use crate::stats::{CacheStats, GroupStats};

/// The state of the caches.
pub(crate) struct KvCache {
    groups: Vec<Group>,
    /// As backends know the groups; `None` for one in which no layer stores anything.
    ids: Vec<Option<GroupId>>,
    page_bytes: Vec<usize>,
    pools: Vec<PagePool>,
    tree: PrefixTree,
    windows: WindowPolicy,
    /// Counts only; the groups are looked at when they are asked for.
    counts: CacheStats,
}

impl KvCache {
    pub(crate) fn new(recording: &Recording, options: EngineOptions) -> Result<Self, EngineError> {
        let groups = recording.groups.clone();
        let id = |g| recording.caches.iter().map(|c| c.group).find(|id| id.index() == g);
        let ids = (0..groups.len()).map(id).collect();
        let needs = needs::groups(recording, options)?;
        let page_bytes = needs.iter().map(|g| g.page_bytes).collect();
        let pools = needs.iter().map(|g| PagePool::new(&g.name, g.pages)).collect();
        let tree = PrefixTree::new(groups.clone());
        let counts = CacheStats::default();
        Ok(Self { groups, ids, page_bytes, pools, tree, windows: options.cache.windows, counts })
    }

    /// Pages of each group.
    pub(crate) fn pages(&self) -> Vec<usize> {
        self.pools.iter().map(PagePool::len).collect()
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Pages of group `g` that sequences can get: free ones, and those that only prefixes hold.
    pub(crate) fn room(&self, g: usize) -> usize {
        self.pools[g].available() + self.pools[g].idle()
    }

    /// The most pages of group `g` that one sequence of `len` tokens holds if it is computed row by row.
    pub(crate) fn pages_of(&self, g: usize, len: usize) -> usize {
        let kept = match self.groups[g].span {
            Span::All => usize::MAX,
            // Behind a step the window before the last position, and the next position's page.
            Span::Last(n) => (n as usize).div_ceil(PAGE) + 1,
            Span::Pages(n) => n as usize + 1,
        };
        len.div_ceil(PAGE).min(kept)
    }

    /// How many tokens one sequence can hold if it is alone.
    pub(crate) fn capacity(&self) -> usize {
        let of = |g: usize| {
            let pages = self.pools[g].len();
            if self.pages_of(g, usize::MAX) <= pages { usize::MAX } else { pages * PAGE }
        };
        (0..self.groups()).map(of).min().unwrap_or(usize::MAX)
    }

    /// How many tokens [`KvCache::adopt`] would find, and by group how many of their pages sequences hold.
    pub(crate) fn prefix(&self, tokens: &[u32]) -> (usize, Vec<usize>) {
        let Some(hit) = self.tree.find(tokens, tokens.len().saturating_sub(1)) else {
            return (0, vec![0; self.groups()]);
        };
        let in_use = self.pools.iter().enumerate().map(|(g, pool)| self.tree.in_use(&hit, g, pool));
        (hit.len, in_use.collect())
    }

    /// Whether prefixes can end at every border of pages, and not only at ends of prompts and answers.
    pub(crate) fn ends_anywhere(&self) -> bool {
        let spans = || self.groups.iter().map(|g| g.span);
        self.windows == WindowPolicy::Keep || !spans().any(|s| matches!(s, Span::Last(_)))
    }

    /// Forgets everything, also what sequences hold: they must be gone.
    pub(crate) fn reset(&mut self) {
        let pools = self.groups.iter().zip(&self.pools);
        self.pools = pools.map(|(group, pool)| PagePool::new(&group.name, pool.len())).collect();
        self.tree = PrefixTree::new(self.groups.clone());
    }

    /// Makes `pages` pages of group `g` free, at the cost of prefixes that no sequence uses.
    pub(crate) fn make_room(&mut self, g: usize, pages: usize) -> Result<(), EngineError> {
        while self.pools[g].available() < pages {
            if !self.tree.evict(g, &mut self.pools) {
                return Err(self.pools[g].exhausted());
            }
            self.counts.evictions += 1;
        }
        Ok(())
    }

    /// Takes back what a step that failed has reserved in groups that have pages for one step at a time only.
    pub(crate) fn drop_reserved(&mut self, sequence: &mut Sequence, g: usize) {
        if matches!(self.groups[g].span, Span::Pages(_)) {
            sequence.drop_reserved(g, &mut self.pools[g]);
        }
    }

    /// Gives `more` further positions of a sequence their pages of group `g`; there must be room.
    pub(crate) fn reserve(
        &mut self,
        sequence: &mut Sequence,
        g: usize,
        more: usize,
    ) -> Result<(), EngineError> {
        sequence.reserve(g, more, &mut self.pools[g])
    }

    /// Keeps pages that a sequence has filled since it held `before` tokens, for others that begin like it, and lets go of
    /// those that left its windows.
    pub(crate) fn advance(&mut self, sequence: &mut Sequence, before: usize) {
        let whole = sequence.len() / PAGE;
        if whole > before / PAGE {
            let windows = self.windows == WindowPolicy::Keep;
            // What is kept of the last pages alone is of no use behind them: a prefix can end at every border without it.
            let kept = |span| match span {
                Span::All => true,
                Span::Last(_) => windows,
                Span::Pages(_) => false,
            };
            let tokens = &sequence.tokens[..whole * PAGE];
            self.tree.insert(tokens, &mut sequence.tables, &mut self.pools, kept);
        }
        for (g, group) in self.groups.iter().enumerate() {
            sequence.drop_behind_window(g, group, &mut self.pools[g]);
        }
    }

    /// Keeps all pages of a sequence, so that others can continue from its end.
    pub(crate) fn remember(&mut self, sequence: &mut Sequence) {
        self.tree.insert(&sequence.tokens, &mut sequence.tables, &mut self.pools, |_| true);
    }

    /// Keeps the pages of a sequence and ends it.
    pub(crate) fn release(&mut self, mut sequence: Sequence) {
        self.remember(&mut sequence);
        sequence.release(&mut self.pools);
    }

    /// A sequence that holds what the caches have of the beginning of `tokens`, the last one left out.
    pub(crate) fn adopt(
        &mut self,
        tokens: &[u32],
        program: &mut dyn Program,
    ) -> Result<Sequence, EngineError> {
        let mut limit = tokens.len().saturating_sub(1);
        self.counts.lookups += 1;
        self.counts.tokens_wanted += limit as u64;
        while let Some(hit) = self.tree.find(tokens, limit) {
            let tables = self.tree.share(&hit, &mut self.pools);
            let sequence = Sequence { tokens: tokens[..hit.len].to_vec(), tables, tree: None };
            match self.finish_sharing(sequence, program) {
                Ok(sequence) => {
                    self.counts.hits += 1;
                    self.counts.tokens_reused += hit.len as u64;
                    return Ok(sequence);
                }
                // No page for the part of the last one: what lies before needs none.
                Err(EngineError::OutOfPages { .. }) => limit = (hit.len - 1) / PAGE * PAGE,
                Err(error) => return Err(error),
            }
        }
        Ok(Sequence::new(self.groups()))
    }

    /// Another sequence with the tokens of `sequence`.
    pub(crate) fn fork(
        &mut self,
        sequence: &Sequence,
        program: &mut dyn Program,
    ) -> Result<Sequence, EngineError> {
        let copy = Sequence { tokens: sequence.tokens.clone(), tables: sequence.tables.clone(), tree: None };
        for (table, pool) in copy.tables.iter().zip(&mut self.pools) {
            table.iter().filter(|&&page| page != NO_PAGE).for_each(|&page| pool.share(page));
        }
        self.finish_sharing(copy, program)
    }

    /// Gives a sequence whose pages are all shared a last page of its own, if it is partly filled: the next token is
    /// written there. If that fails, the sequence is gone.
    fn finish_sharing(
        &mut self,
        mut sequence: Sequence,
        program: &mut dyn Program,
    ) -> Result<Sequence, EngineError> {
        let result = self.copy_last(&mut sequence, program);
        if result.is_err() {
            sequence.release(&mut self.pools);
        }
        result.map(|()| sequence)
    }

    fn copy_last(&mut self, sequence: &mut Sequence, program: &mut dyn Program) -> Result<(), EngineError> {
        let filled = sequence.len() % PAGE;
        for g in 0..self.groups.len() {
            // Pages that were reserved for a step that failed belong to the other sequence.
            let pages = sequence.len().div_ceil(PAGE);
            let surplus = sequence.tables[g].split_off(pages);
            surplus.into_iter().for_each(|page| self.pools[g].give(page));
        }
        if filled == 0 {
            return Ok(());
        }
        for g in 0..self.groups.len() {
            let last = sequence.tables[g].len() - 1;
            if !self.pools[g].is_shared(sequence.tables[g][last]) {
                continue;
            }
            self.make_room(g, 1)?;
            let own = self.pools[g].take()?;
            let shared = std::mem::replace(&mut sequence.tables[g][last], own);
            let slot = |page: u32, i: u32| page * PAGE as u32 + i;
            let positions = 0..u32::try_from(filled).expect("below the page size");
            let moves: Vec<SlotMove> =
                positions.map(|i| SlotMove { from: slot(shared, i), to: slot(own, i) }).collect();
            let copied = self.ids[g].map_or(Ok(()), |id| program.move_slots(id, &moves));
            self.pools[g].give(shared);
            copied?;
            self.counts.copies += 1;
        }
        Ok(())
    }

    /// Moves the nodes `path` of a sequence's tree to where they lie if they stay.
    pub(crate) fn settle(
        &mut self,
        sequence: &Sequence,
        path: &[usize],
        program: &mut dyn Program,
    ) -> Result<(), EngineError> {
        let Some(tree) = &sequence.tree else { return Ok(()) };
        for (g, id) in self.ids.iter().enumerate() {
            let Some(id) = *id else { continue };
            let moves: Vec<SlotMove> = path
                .iter()
                .filter(|&&n| !tree.is_in_place(n))
                .map(|&n| SlotMove {
                    from: tree.slot(sequence, g, n),
                    to: sequence.slot(g, tree.position(n)),
                })
                .collect();
            if !moves.is_empty() {
                program.move_slots(id, &moves)?;
            }
        }
        Ok(())
    }

    /// Gives back what a tree that is not computed further holds.
    pub(crate) fn drop_tree(&mut self, sequence: &mut Sequence) {
        let Some(tree) = sequence.tree.take() else { return };
        for (g, pages) in tree.spare.into_iter().enumerate() {
            pages.into_iter().for_each(|page| self.pools[g].give(page));
            sequence.drop_reserved(g, &mut self.pools[g]);
        }
    }

    /// Whether a sequence could go on from position `len`.
    pub(crate) fn can_rewind(&self, sequence: &Sequence, len: usize) -> bool {
        self.groups.iter().enumerate().all(|(g, group)| sequence.can_end(g, group, len))
    }

    /// Takes the end of a sequence away, which [can be](KvCache::can_rewind).
    pub(crate) fn rewind(
        &mut self,
        sequence: &mut Sequence,
        len: usize,
        program: &mut dyn Program,
    ) -> Result<(), EngineError> {
        self.drop_tree(sequence);
        if len == sequence.len() {
            return Ok(());
        }
        if !len.is_multiple_of(PAGE) {
            for g in 0..self.groups() {
                if self.pools[g].is_shared(sequence.tables[g][len / PAGE]) {
                    self.make_room(g, 1)?;
                }
            }
        }
        sequence.tokens.truncate(len);
        for (g, pool) in self.pools.iter_mut().enumerate() {
            sequence.drop_reserved(g, pool);
        }
        let copied = self.copy_last(sequence, program);
        if copied.is_err() {
            sequence.tokens.truncate(len / PAGE * PAGE);
            for (g, pool) in self.pools.iter_mut().enumerate() {
                sequence.drop_reserved(g, pool);
            }
        }
        copied
    }

    /// Forgets what no sequence uses.
    pub(crate) fn clear(&mut self) {
        self.tree.clear(&mut self.pools);
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let groups = self.groups.iter().zip(&self.pools).enumerate().map(|(g, (group, pool))| GroupStats {
            name: group.name.clone(),
            page_bytes: self.page_bytes[g],
            pages: pool.len(),
            in_use: pool.in_use(),
            cached: pool.idle(),
            free: pool.available(),
        });
        CacheStats { groups: groups.collect(), ..self.counts.clone() }
    }
}
