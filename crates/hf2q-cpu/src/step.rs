//! What a running step knows beyond the plan: its rows, and which of them lie side by side.

use std::ops::Range;

use hf2q_plan::{Group, PAGE, RowKind, Step};

/// Most rows that one attention task takes: enough to use a page's keys and values many times while they are in the
/// first cache.
const CHUNK: usize = 32;

/// A step and what is computed from it once for all operations.
#[derive(Debug)]
pub(crate) struct StepData {
    pub(crate) step: Step,
    /// Runs of rows of one sequence at successive positions that all find their keys by page table, cut to [`CHUNK`];
    /// any other row is a run of its own.
    pub(crate) chunks: Vec<Range<usize>>,
    /// By group: rows that store into one page.
    stores: Vec<Stores>,
    /// `0, 1, 2, …`: as many as a matrix product may have rows.
    pub(crate) identity: Vec<u32>,
}

/// The rows of a step in the order of the pages that they store into, in one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stores {
    rows: Vec<usize>,
    /// Parts of `rows`, one for each page.
    pages: Vec<Range<usize>>,
}

impl Stores {
    fn set(&mut self, slots: &[u32]) {
        let page = |&row: &usize| slots[row] as usize / PAGE;
        self.rows.clear();
        self.rows.extend(0..slots.len());
        self.rows.sort_by_key(page);
        self.pages.clear();
        let mut start = 0;
        for rows in self.rows.chunk_by(|a, b| page(a) == page(b)) {
            self.pages.push(start..start + rows.len());
            start += rows.len();
        }
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Rows that store into the `i`-th page.
    pub(crate) fn rows(&self, i: usize) -> &[usize] {
        &self.rows[self.pages[i].clone()]
    }
}

impl StepData {
    pub(crate) fn new(max_rows: usize) -> Self {
        let empty = Step {
            rows: Vec::new(),
            tree_base: Vec::new(),
            paths: Vec::new(),
            path_len: 0,
            groups: Vec::new(),
            logit_rows: Vec::new(),
        };
        let identity = (0..max_rows).map(|r| u32::try_from(r).unwrap_or(u32::MAX)).collect();
        Self { step: empty, chunks: Vec::new(), stores: Vec::new(), identity }
    }

    /// Takes over a step that has been checked.
    pub(crate) fn set(&mut self, step: &Step) {
        self.step.clone_from(step);
        self.stores.resize(step.groups.len(), Stores::default());
        for (stores, group) in self.stores.iter_mut().zip(&step.groups) {
            stores.set(&group.slots);
        }
        self.chunks.clear();
        let mut start = 0;
        for row in 1..=step.len() {
            if row == step.len() || row - start == CHUNK || !self.continues(row) {
                self.chunks.push(start..row);
                start = row;
            }
        }
    }

    /// Whether row `row` follows the row before it within a run.
    fn continues(&self, row: usize) -> bool {
        let (before, this) = (self.step.rows[row - 1], self.step.rows[row]);
        this.sequence == before.sequence
            && this.position == before.position.wrapping_add(1)
            && self.is_paged(row - 1)
            && self.is_paged(row)
    }

    /// Whether the row finds all its keys by page table.
    pub(crate) fn is_paged(&self, row: usize) -> bool {
        self.step.tree_base[row] > self.step.rows[row].position
    }

    /// What is stored in a group's caches.
    pub(crate) fn stores(&self, group: usize) -> &Stores {
        &self.stores[group]
    }

    /// Rows of an activation in this step.
    pub(crate) fn count(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Step => self.step.len(),
            RowKind::Logits => self.step.logit_rows.len(),
        }
    }

    pub(crate) fn position(&self, row: usize) -> usize {
        self.step.rows[row].position as usize
    }

    /// Positions that a row sees.
    pub(crate) fn visible(&self, group: &Group, row: usize) -> Range<usize> {
        let end = self.position(row) + 1;
        group.window.map_or(0, |w| end.saturating_sub(w as usize))..end
    }

    /// Page of block `block` of positions for a row that is paged; the step's check has found it to exist.
    pub(crate) fn page(&self, group: usize, row: usize, block: usize) -> usize {
        let g = &self.step.groups[group];
        let sequence = self.step.rows[row].sequence as usize;
        g.page_tables[sequence * g.pages_per_sequence + block] as usize
    }

    /// Slot of a position that a row sees.
    pub(crate) fn slot(&self, group: usize, row: usize, position: usize) -> usize {
        let position = u32::try_from(position).expect("positions are u32");
        let slot = self.step.slot(group, row, position);
        slot.expect("the step's check has found every visible position") as usize
    }

    /// Page and offset in it where a row's key and value are stored.
    pub(crate) fn target(&self, group: usize, row: usize) -> (usize, usize) {
        let slot = self.step.groups[group].slots[row] as usize;
        (slot / PAGE, slot % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use hf2q_plan::{GroupStep, Row};

    use super::*;

    #[test]
    fn runs_end_at_gaps_paths_and_other_sequences() {
        let row = |sequence, position| Row { sequence, token: 0, position, parent: None };
        let mut rows: Vec<Row> = (0..40).map(|p| row(0, p)).collect();
        rows.extend([row(1, 3), row(1, 4), row(1, 6), row(1, 7)]);
        let mut slots: Vec<u32> = (0..40).collect();
        // The last row stores off its page, so it is found by path.
        slots.extend([67, 68, 70, 130]);
        let group = GroupStep { slots, page_tables: vec![0, 1], pages_per_sequence: 1 };
        let step = Step::new(rows, vec![group], vec![]).unwrap();
        let mut data = StepData::new(64);
        data.set(&step);
        assert_eq!(data.chunks, [0..32, 32..40, 40..42, 42..43, 43..44]);
        let window = Group { name: "sliding".into(), window: Some(16) };
        assert_eq!(data.visible(&window, 39), 24..40);
        let stores = data.stores(0);
        let pages: Vec<&[usize]> = (0..stores.pages()).map(|i| stores.rows(i)).collect();
        assert_eq!(pages, [&(0..40).collect::<Vec<_>>()[..], &[40, 41, 42], &[43]]);
    }
}
