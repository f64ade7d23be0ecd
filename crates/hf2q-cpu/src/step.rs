//! What a running step knows beyond the plan: its rows, and which of them lie side by side.

use std::ops::Range;

use hf2q_plan::{PAGE, RowKind, Span, Step};

/// Most rows that one attention task takes: enough to use a page's keys and values many times while they are near.
const CHUNK: usize = 32;

/// Chunks that a smaller step is cut into, so that many threads have some, while they keep [`LEAST`] rows.
const CHUNKS: usize = 8;
const LEAST: usize = 16;

/// A step and what is computed from it once for all operations.
#[derive(Debug)]
pub(crate) struct StepData {
    pub(crate) step: Step,
    /// Of all rows.
    chunks: Vec<Chunk>,
    /// Of the rows whose logits are wanted.
    wanted: Vec<Chunk>,
    /// By group: rows that store into one page.
    stores: Vec<Stores>,
    /// `0, 1, 2, …`: as many as a matrix product may have rows.
    pub(crate) identity: Vec<u32>,
}

/// Rows that lie side by side in the step and in an activation. They are of one sequence at successive positions and all
/// find their keys by page table, and are [`CHUNK`] at most; any other row is alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Rows of the step.
    pub(crate) rows: Range<usize>,
    /// The activation's row that is the first of them.
    pub(crate) at: usize,
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
            inputs: Vec::new(),
        };
        let identity = (0..max_rows).map(|r| u32::try_from(r).unwrap_or(u32::MAX)).collect();
        Self { step: empty, chunks: Vec::new(), wanted: Vec::new(), stores: Vec::new(), identity }
    }

    /// Takes over a step that has been checked.
    pub(crate) fn set(&mut self, step: &Step) {
        self.step.clone_from(step);
        self.stores.resize(step.groups.len(), Stores::default());
        for (stores, group) in self.stores.iter_mut().zip(&step.groups) {
            stores.set(&group.slots);
        }
        let (chunks, wanted) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.wanted));
        self.chunks = self.cut(RowKind::Step, chunks);
        self.wanted = self.cut(RowKind::Logits, wanted);
    }

    /// The chunks of an activation's rows, in memory that may be used again.
    fn cut(&self, kind: RowKind, mut chunks: Vec<Chunk>) -> Vec<Chunk> {
        chunks.clear();
        let most = self.count(kind).div_ceil(CHUNKS).clamp(LEAST, CHUNK);
        for at in 0..self.count(kind) {
            let row = self.row(kind, at);
            match chunks.last_mut() {
                Some(Chunk { rows, .. }) if rows.end == row && rows.len() < most && self.continues(row) => {
                    rows.end += 1;
                }
                _ => chunks.push(Chunk { rows: row..row + 1, at }),
            }
        }
        chunks
    }

    /// Parts of an activation's rows.
    pub(crate) fn chunks(&self, kind: RowKind) -> &[Chunk] {
        match kind {
            RowKind::Step => &self.chunks,
            RowKind::Logits => &self.wanted,
        }
    }

    /// The row of the step that row `i` of an activation is.
    pub(crate) fn row(&self, kind: RowKind, i: usize) -> usize {
        match kind {
            RowKind::Step => i,
            RowKind::Logits => self.step.logit_rows[i] as usize,
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
    pub(crate) fn visible(&self, span: Span, row: usize) -> Range<usize> {
        span.seen(self.position(row))
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
    fn long_steps_are_cut_into_chunks_of_many_rows() {
        let row = |position| Row { sequence: 0, token: 0, position, parent: None };
        let (slots, page_tables) = ((0..300).collect(), (0..5).collect());
        let group = GroupStep { slots, page_tables, pages_per_sequence: 5 };
        let step = Step::new((0..300).map(row).collect(), vec![group], vec![]).unwrap();
        let mut data = StepData::new(512);
        data.set(&step);
        let lengths: Vec<usize> = data.chunks(RowKind::Step).iter().map(|c| c.rows.len()).collect();
        assert_eq!(lengths, [32, 32, 32, 32, 32, 32, 32, 32, 32, 12]);
    }

    #[test]
    fn runs_end_at_gaps_paths_and_other_sequences() {
        let row = |sequence, position| Row { sequence, token: 0, position, parent: None };
        let mut rows: Vec<Row> = (0..40).map(|p| row(0, p)).collect();
        rows.extend([row(1, 3), row(1, 4), row(1, 6), row(1, 7)]);
        let mut slots: Vec<u32> = (0..40).collect();
        // The last row stores off its page, so it is found by path.
        slots.extend([67, 68, 70, 130]);
        let group = GroupStep { slots, page_tables: vec![0, 1], pages_per_sequence: 1 };
        let step = Step::new(rows, vec![group], vec![3, 4, 5, 7, 39, 40, 41, 43]).unwrap();
        let mut data = StepData::new(64);
        data.set(&step);
        let chunks = |kind| data.chunks(kind).iter().map(|c| (c.rows.clone(), c.at)).collect::<Vec<_>>();
        let all = [(0..16, 0), (16..32, 16), (32..40, 32), (40..42, 40), (42..43, 42), (43..44, 43)];
        assert_eq!(chunks(RowKind::Step), all);
        let wanted = [(3..6, 0), (7..8, 3), (39..40, 4), (40..42, 5), (43..44, 7)];
        assert_eq!(chunks(RowKind::Logits), wanted);
        assert_eq!(data.visible(Span::Last(16), 39), 24..40);
        let stores = data.stores(0);
        let pages: Vec<&[usize]> = (0..stores.pages()).map(|i| stores.rows(i)).collect();
        assert_eq!(pages, [&(0..40).collect::<Vec<_>>()[..], &[40, 41, 42], &[43]]);
    }
}
