//! The numbers of a step as kernels read them: one list of words, sent in one copy.
//!
//! A header of [`HEADER`] words and [`GROUP`] words for each group of caches says where the lists lie; `common.cuh` has
//! the same names.

use std::ops::Range;

use hf2q_plan::{PAGE, RowKind, Step};

/// Words before those of groups.
const HEADER: usize = 16;
/// Words of a group in the header.
const GROUP: usize = 8;
/// Most rows of a chunk.
const CHUNK: usize = 16;
/// Pages of keys that attention sums up together, whatever the length of the sequence: `SPAN` of the kernel.
pub(crate) const SPAN_PAGES: usize = 1;

/// Positions in the header.
mod at {
    pub(super) const ROWS: usize = 0;
    pub(super) const LOGIT_ROWS: usize = 1;
    pub(super) const PATH_LEN: usize = 2;
    pub(super) const TOKENS: usize = 3;
    pub(super) const POSITIONS: usize = 4;
    pub(super) const SEQUENCES: usize = 5;
    pub(super) const TREE_BASE: usize = 6;
    pub(super) const LOGIT_LIST: usize = 7;
    /// Number of chunks, then their position; of all rows, then of those whose logits are wanted.
    pub(super) const CHUNKS: usize = 8;
    pub(super) const WANTED: usize = 10;
    /// Most rows of a chunk; of all rows, then of those whose logits are wanted.
    pub(super) const CHUNK_ROWS: usize = 12;
    /// Position of the list of positions of inputs.
    pub(super) const INPUTS: usize = 14;
}

/// Positions in a group's words.
mod of_group {
    pub(super) const SLOTS: usize = 0;
    pub(super) const TABLES: usize = 1;
    pub(super) const PAGES: usize = 2;
    pub(super) const PATHS: usize = 3;
    /// Most spans of keys that a chunk sees; of all rows, then of those whose logits are wanted.
    pub(super) const SPANS: usize = 4;
}

/// Rows that lie side by side in the step and in an activation: of one sequence, at successive positions of one page, all
/// finding their keys by page table, [`CHUNK`] at most. Any other row is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    row: usize,
    at: usize,
    rows: usize,
}

/// Lists the numbers of a step that has been checked. `windows` are those of the groups.
pub(crate) fn words(step: &Step, windows: &[Option<u32>], out: &mut Vec<u32>) {
    out.clear();
    out.resize(HEADER + GROUP * step.groups.len(), 0);
    out[at::ROWS] = word(step.len());
    out[at::LOGIT_ROWS] = word(step.logit_rows.len());
    out[at::PATH_LEN] = word(step.path_len);
    list(out, at::TOKENS, step.rows.iter().map(|r| r.token));
    list(out, at::POSITIONS, step.rows.iter().map(|r| r.position));
    list(out, at::SEQUENCES, step.rows.iter().map(|r| r.sequence));
    list(out, at::TREE_BASE, step.tree_base.iter().copied());
    list(out, at::LOGIT_LIST, step.logit_rows.iter().copied());
    for (i, group) in step.groups.iter().enumerate() {
        let base = HEADER + GROUP * i;
        list(out, base + of_group::SLOTS, group.slots.iter().copied());
        list(out, base + of_group::TABLES, group.page_tables.iter().copied());
        list(out, base + of_group::PATHS, step.paths[i].iter().copied());
        out[base + of_group::PAGES] = word(group.pages_per_sequence);
    }
    let inputs = list(out, at::INPUTS, step.inputs.iter().map(|_| 0));
    for (entry, values) in inputs.zip(&step.inputs) {
        list(out, entry, values.iter().map(|x| x.to_bits()));
    }
    for (kind, base, spans) in [(RowKind::Step, at::CHUNKS, 0), (RowKind::Logits, at::WANTED, 1)] {
        let chunks = chunks(step, kind);
        out[base] = word(chunks.len());
        out[at::CHUNK_ROWS + spans] = word(chunks.iter().map(|c| c.rows).max().unwrap_or(0));
        list(out, base + 1, chunks.iter().flat_map(|c| [c.row, c.at, c.rows].map(word)));
        for (i, &window) in windows.iter().enumerate() {
            let most = chunks.iter().map(|c| spans_of(step, window, c)).max();
            out[HEADER + GROUP * i + of_group::SPANS + spans] = word(most.unwrap_or(0));
        }
    }
}

/// Most spans of keys that a chunk sees in group `i`, of listed words.
pub(crate) fn spans(words: &[u32], i: usize) -> usize {
    let first = HEADER + GROUP * i + of_group::SPANS;
    words[first..][..2].iter().max().map_or(0, |&n| n as usize)
}

fn word(n: usize) -> u32 {
    u32::try_from(n).expect("a step's lists are shorter than 2^32")
}

/// Appends a list and notes where it begins. Returns its positions.
fn list(out: &mut Vec<u32>, entry: usize, values: impl Iterator<Item = u32>) -> Range<usize> {
    let first = out.len();
    out[entry] = word(first);
    out.extend(values);
    first..out.len()
}

fn is_paged(step: &Step, row: usize) -> bool {
    step.tree_base[row] > step.rows[row].position
}

fn chunks(step: &Step, kind: RowKind) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let count = match kind {
        RowKind::Step => step.len(),
        RowKind::Logits => step.logit_rows.len(),
    };
    for at in 0..count {
        let row = if kind == RowKind::Step { at } else { step.logit_rows[at] as usize };
        match chunks.last_mut() {
            Some(c) if c.row + c.rows == row && c.rows < CHUNK && continues(step, row) => c.rows += 1,
            _ => chunks.push(Chunk { row, at, rows: 1 }),
        }
    }
    chunks
}

fn continues(step: &Step, row: usize) -> bool {
    let (before, this) = (step.rows[row - 1], step.rows[row]);
    this.sequence == before.sequence
        && Some(this.position) == before.position.checked_add(1)
        && this.position % PAGE as u32 != 0
        && is_paged(step, row - 1)
        && is_paged(step, row)
}

/// Spans of keys, from that of the first key which its first row sees to that of its last row.
fn spans_of(step: &Step, window: Option<u32>, chunk: &Chunk) -> usize {
    let span = |position: u32| position as usize / (PAGE * SPAN_PAGES);
    let end = step.rows[chunk.row].position + 1;
    let first = window.map_or(0, |w| end.saturating_sub(w));
    span(step.rows[chunk.row + chunk.rows - 1].position) - span(first) + 1
}

#[cfg(test)]
mod tests {
    use hf2q_plan::{GroupStep, Row};

    use super::*;

    fn step() -> Step {
        let row = |sequence, token, position| Row { sequence, token, position, parent: None };
        let mut rows: Vec<Row> = (0..10).map(|p| row(0, 100 + p, 250 + p)).collect();
        rows.extend([row(1, 7, 3), row(1, 8, 4), row(1, 9, 6)]);
        // The last row stores off its page, so it is found by path.
        let slots = (58..64).chain(128..132).chain([195, 196, 70]).collect();
        let group =
            GroupStep { slots, page_tables: vec![9, 9, 9, 0, 2, 3, 0, 0, 0, 0], pages_per_sequence: 5 };
        Step::new(rows, vec![group], vec![8, 9, 12]).unwrap()
    }

    #[test]
    fn lists_are_where_the_header_says() {
        let step = step();
        let mut out = Vec::new();
        words(&step, &[Some(100)], &mut out);
        assert_eq!(out[..3], [13, 3, 1]);
        let get = |entry: usize, i: usize| out[out[entry] as usize + i];
        assert_eq!((get(at::TOKENS, 3), get(at::POSITIONS, 3), get(at::SEQUENCES, 11)), (103, 253, 1));
        assert_eq!((get(at::TREE_BASE, 0), get(at::TREE_BASE, 12), get(at::LOGIT_LIST, 2)), (251, 6, 12));
        let group = HEADER;
        assert_eq!((get(group + of_group::SLOTS, 12), get(group + of_group::TABLES, 4)), (70, 2));
        assert_eq!((out[group + of_group::PAGES], get(group + of_group::PATHS, 12)), (5, 70));
        assert_eq!((out[group + of_group::SPANS..][..2].to_vec(), spans(&out, 0)), (vec![3, 3], 3));
    }

    #[test]
    fn inputs_are_where_their_list_says() {
        let rows = |first: u8| (0..13).map(|i| f32::from(first + i)).collect();
        let mut out = Vec::new();
        words(&step().with_inputs(vec![rows(0), rows(50)]), &[None], &mut out);
        let list = out[at::INPUTS] as usize;
        let value = |input: usize, i: usize| f32::from_bits(out[out[list + input] as usize + i]);
        assert_eq!((value(0, 3), value(1, 12)), (3.0, 62.0));
    }

    #[test]
    fn chunks_end_at_gaps_paths_and_other_sequences() {
        let step = step();
        let all: Vec<_> = chunks(&step, RowKind::Step).iter().map(|c| (c.row, c.at, c.rows)).collect();
        assert_eq!(all, [(0, 0, 6), (6, 6, 4), (10, 10, 2), (12, 12, 1)]);
        let wanted: Vec<_> = chunks(&step, RowKind::Logits).iter().map(|c| (c.row, c.at, c.rows)).collect();
        assert_eq!(wanted, [(8, 0, 2), (12, 2, 1)]);
    }
}
