//! One step of a model: prompt chunk, decode, batch and draft tree differ in its numbers only.

use crate::backend::Limits;
use crate::plan::Recording;
use crate::span::Span;
use crate::tensor::{NO_PAGE, PAGE};

/// One token to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which of the step's page tables it uses.
    pub sequence: u32,
    /// Token id.
    pub token: u32,
    /// Position in its sequence, from 0.
    pub position: u32,
    /// Row of the same step that this token continues; `None` continues the cache.
    pub parent: Option<u32>,
}

/// What a step needs to know of one group of caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStep {
    /// `[R]`: slot (`page · PAGE + offset`) where each row's key and value are stored.
    pub slots: Vec<u32>,
    /// `[sequences, pages_per_sequence]`: page of positions `PAGE·i ..`; [`NO_PAGE`] where there is none.
    pub page_tables: Vec<u32>,
    /// Columns of `page_tables`.
    pub pages_per_sequence: usize,
}

/// Rows to compute and where their keys and values live.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `[R]`.
    pub rows: Vec<Row>,
    /// `[R]`: a row sees positions below `tree_base` through its page table, and positions `tree_base ..= position`
    /// through [`Step::paths`]. `position + 1` for a row that needs no path.
    pub tree_base: Vec<u32>,
    /// For each group `[R, path_len]`: slot of the row's ancestor at position `tree_base + i` (itself included, last).
    pub paths: Vec<Vec<u32>>,
    /// Columns of each of `paths`; 0 where no row needs a path.
    pub path_len: usize,
    /// One for each group of the recording.
    pub groups: Vec<GroupStep>,
    /// `[L]`: rows whose logits are wanted, ascending.
    pub logit_rows: Vec<u32>,
    /// One for each input of the recording: `[R, width]`.
    pub inputs: Vec<Vec<f32>>,
}

/// A step that no backend may run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepError {
    /// A step needs rows, and no more than the program was opened for.
    #[error("the step has {found} {what}, accepted are 1 to {max}")]
    Count {
        /// Rows or logit rows.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        max: usize,
    },
    /// A parent must come first and be the position before, in the same sequence.
    #[error(
        "row {row} cannot continue row {parent}: a parent comes earlier, in the same sequence, one position before"
    )]
    Parent {
        /// The offending row.
        row: usize,
        /// The parent it named.
        parent: u32,
    },
    /// A list does not have the length that the others imply.
    #[error("the step's {what} has {found} entries, expected {expected}")]
    Length {
        /// Which list.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it needs.
        expected: usize,
    },
    /// An index points outside what it indexes.
    #[error("row {row}: {what} is {found}, which must be below {bound}")]
    Index {
        /// The offending row.
        row: usize,
        /// Token, sequence, slot, page or logit row.
        what: &'static str,
        /// Its value.
        found: u32,
        /// The first value that is not accepted.
        bound: usize,
    },
    /// A position that a row must see has no page.
    #[error("row {row} at position {position} sees position {missing}, which has no page")]
    MissingPage {
        /// The offending row.
        row: usize,
        /// Its position.
        position: u32,
        /// What it cannot see.
        missing: u32,
    },
    /// Two rows would store at the same slot.
    #[error("rows {first} and {second} both store at slot {slot}")]
    SharedSlot {
        /// A row.
        first: usize,
        /// Another row.
        second: usize,
        /// The slot.
        slot: u32,
    },
}

impl Step {
    /// A step from rows and page tables. Rows whose slots (and whose ancestors' slots) are those of their
    /// positions in the page table need no path; the others get one.
    pub fn new(rows: Vec<Row>, groups: Vec<GroupStep>, logit_rows: Vec<u32>) -> Result<Self, StepError> {
        for (i, row) in rows.iter().enumerate() {
            if let Some(p) = row.parent {
                let ok = (p as usize) < i
                    && rows[p as usize].sequence == row.sequence
                    && rows[p as usize].position.checked_add(1) == Some(row.position);
                if !ok {
                    return Err(StepError::Parent { row: i, parent: p });
                }
            }
        }
        for g in &groups {
            if g.slots.len() != rows.len() {
                return Err(StepError::Length { what: "slots", found: g.slots.len(), expected: rows.len() });
            }
        }
        let mut step = Self {
            rows,
            tree_base: Vec::new(),
            paths: vec![Vec::new(); groups.len()],
            path_len: 0,
            groups,
            logit_rows,
            inputs: Vec::new(),
        };
        step.find_paths();
        Ok(step)
    }

    /// The same step with these [inputs](Step::inputs).
    #[must_use]
    pub fn with_inputs(mut self, inputs: Vec<Vec<f32>>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The slot of position `position` of row `row` in group `group`, as attention finds it; `None` where there is no page.
    pub fn slot(&self, group: usize, row: usize, position: u32) -> Option<u32> {
        let base = self.tree_base[row];
        if position >= base {
            let at = row * self.path_len + (position - base) as usize;
            return self.paths[group].get(at).copied();
        }
        self.paged_slot(group, self.rows[row].sequence, position)
    }

    /// Checks every index against the recording and the limits a program was opened with, so that kernels need not.
    pub fn check(&self, recording: &Recording, limits: &Limits, vocabulary: usize) -> Result<(), StepError> {
        count("rows", self.rows.len(), limits.max_rows)?;
        if self.logit_rows.len() > limits.max_logit_rows {
            count("logit rows", self.logit_rows.len(), limits.max_logit_rows)?;
        }
        length("groups", self.groups.len(), recording.groups.len())?;
        length("tree_base", self.tree_base.len(), self.rows.len())?;
        length("groups of paths", self.paths.len(), self.groups.len())?;
        self.check_inputs(recording)?;
        for &r in &self.logit_rows {
            index(0, "a logit row", r, self.rows.len())?;
        }
        for (r, row) in self.rows.iter().enumerate() {
            index(r, "the token", row.token, vocabulary)?;
            index(r, "the position", row.position, u32::MAX as usize)?;
        }
        for (g, group) in recording.groups.iter().enumerate() {
            self.check_group(g, group.span, limits.pages[g])?;
        }
        Ok(())
    }

    fn check_inputs(&self, recording: &Recording) -> Result<(), StepError> {
        length("inputs", self.inputs.len(), recording.inputs.len())?;
        for (values, width) in self.inputs.iter().zip(&recording.inputs) {
            length("values of an input", values.len(), self.rows.len().saturating_mul(*width))?;
        }
        Ok(())
    }

    fn check_group(&self, g: usize, span: Span, pages: usize) -> Result<(), StepError> {
        let group = &self.groups[g];
        length("slots", group.slots.len(), self.rows.len())?;
        length("paths", self.paths[g].len(), self.rows.len().saturating_mul(self.path_len))?;
        let sequences = group.page_tables.len() / group.pages_per_sequence.max(1);
        let mut writers = std::collections::HashMap::new();
        for (r, row) in self.rows.iter().enumerate() {
            index(r, "the sequence", row.sequence, sequences)?;
            index(r, "the slot", group.slots[r], pages * PAGE)?;
            if let Some(first) = writers.insert(group.slots[r], r) {
                return Err(StepError::SharedSlot { first, second: r, slot: group.slots[r] });
            }
            self.check_visible(g, r, span, pages)?;
        }
        Ok(())
    }

    fn check_visible(&self, g: usize, r: usize, span: Span, pages: usize) -> Result<(), StepError> {
        let position = self.rows[r].position;
        let along_path = (position + 1).saturating_sub(self.tree_base[r]);
        if along_path as usize > self.path_len || self.tree_base[r] > position + 1 {
            return Err(StepError::Length {
                what: "path",
                found: self.path_len,
                expected: along_path as usize,
            });
        }
        let missing = |missing| StepError::MissingPage { row: r, position, missing };
        let mut at = u32::try_from(span.first(position as usize)).unwrap_or(position);
        while at <= position {
            let slot = self.slot(g, r, at).ok_or_else(|| missing(at))?;
            index(r, "a slot it sees", slot, pages * PAGE)?;
            // Positions of one page stand or fall together; along a path each is looked at.
            let next_page = (at / PAGE as u32 + 1) * PAGE as u32;
            at = if at >= self.tree_base[r] { at + 1 } else { next_page.min(self.tree_base[r]) };
        }
        Ok(())
    }

    fn paged_slot(&self, group: usize, sequence: u32, position: u32) -> Option<u32> {
        let g = &self.groups[group];
        let page_index = position as usize / PAGE;
        if page_index >= g.pages_per_sequence {
            return None;
        }
        let page = *g.page_tables.get(sequence as usize * g.pages_per_sequence + page_index)?;
        if page == NO_PAGE {
            None
        } else {
            page.checked_mul(PAGE as u32)?.checked_add(position % PAGE as u32)
        }
    }

    fn in_place(&self, row: usize) -> bool {
        let r = self.rows[row];
        (0..self.groups.len())
            .all(|g| self.paged_slot(g, r.sequence, r.position) == Some(self.groups[g].slots[row]))
    }

    fn find_paths(&mut self) {
        for (i, row) in self.rows.iter().enumerate() {
            let from_parent = row.parent.map(|p| (self.rows[p as usize], self.tree_base[p as usize]));
            let base = match from_parent {
                Some((parent, base)) if base <= parent.position => base,
                _ if self.in_place(i) => row.position.saturating_add(1),
                _ => row.position,
            };
            self.tree_base.push(base);
        }
        let depth =
            |i: usize| self.rows[i].position.saturating_add(1).saturating_sub(self.tree_base[i]) as usize;
        self.path_len = (0..self.rows.len()).map(depth).max().unwrap_or(0);
        for g in 0..self.groups.len() {
            let mut paths = vec![0; self.rows.len() * self.path_len];
            for i in 0..self.rows.len() {
                let mut ancestor = Some(i);
                for d in (0..depth(i)).rev() {
                    let Some(a) = ancestor else { break };
                    paths[i * self.path_len + d] = self.groups[g].slots[a];
                    ancestor = self.rows[a].parent.map(|p| p as usize);
                }
            }
            self.paths[g] = paths;
        }
    }
}

fn count(what: &'static str, found: usize, max: usize) -> Result<(), StepError> {
    if found == 0 || found > max { Err(StepError::Count { what, found, max }) } else { Ok(()) }
}

fn length(what: &'static str, found: usize, expected: usize) -> Result<(), StepError> {
    if found == expected { Ok(()) } else { Err(StepError::Length { what, found, expected }) }
}

fn index(row: usize, what: &'static str, found: u32, bound: usize) -> Result<(), StepError> {
    if (found as usize) < bound { Ok(()) } else { Err(StepError::Index { row, what, found, bound }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: u32, parent: Option<u32>) -> Row {
        Row { sequence: 0, token: 1, position, parent }
    }

    fn group(slots: &[u32]) -> GroupStep {
        GroupStep { slots: slots.to_vec(), page_tables: vec![2, 0], pages_per_sequence: 2 }
    }

    #[test]
    fn a_chunk_in_its_own_pages_needs_no_path() {
        let rows = vec![row(62, None), row(63, Some(0)), row(64, Some(1))];
        let step = Step::new(rows, vec![group(&[190, 191, 0])], vec![2]).unwrap();
        assert_eq!((step.path_len, &step.tree_base[..]), (0, &[63, 64, 65][..]));
        assert_eq!(step.slot(0, 2, 63), Some(191));
    }

    #[test]
    fn siblings_see_their_own_path_only() {
        let rows = vec![row(10, None), row(11, Some(0)), row(11, Some(0)), row(12, Some(2))];
        // Row 2 stores off its page, so it and its descendant are found by path.
        let step = Step::new(rows, vec![group(&[138, 139, 70, 71])], vec![1, 3]).unwrap();
        assert_eq!(step.tree_base, [11, 12, 11, 11]);
        assert_eq!(step.slot(0, 1, 11), Some(139));
        assert_eq!((step.slot(0, 3, 11), step.slot(0, 3, 12)), (Some(70), Some(71)));
        assert_eq!(step.slot(0, 3, 10), Some(138));
    }

    #[test]
    fn a_path_must_reach_its_row() {
        let mut recording = crate::Recorder::default();
        recording.group("global", None);
        let table = crate::Weight { ty: hf2q_gguf::TensorType::F32, cols: 8, rows: 4, experts: 1 };
        let table = recording.weight("table", table);
        let logits = recording.embed("embed", table, 1.0);
        let recording = recording.finish(logits).unwrap();
        let limits = Limits { max_rows: 4, max_logit_rows: 4, pages: vec![3] };
        let mut step =
            Step::new(vec![row(10, None), row(11, Some(0))], vec![group(&[138, 70])], vec![]).unwrap();
        step.check(&recording, &limits, 4).unwrap();
        step.tree_base[1] = 10;
        let got = step.check(&recording, &limits, 4);
        assert_eq!(got, Err(StepError::Length { what: "path", found: 1, expected: 2 }));
    }

    #[test]
    fn the_last_position_and_missing_paths_are_refused() {
        let mut recording = crate::Recorder::default();
        recording.group("global", None);
        let table = crate::Weight { ty: hf2q_gguf::TensorType::F32, cols: 8, rows: 4, experts: 1 };
        let table = recording.weight("table", table);
        let logits = recording.embed("embed", table, 1.0);
        let recording = recording.finish(logits).unwrap();
        let limits = Limits { max_rows: 4, max_logit_rows: 4, pages: vec![3] };
        let far = Step::new(vec![row(u32::MAX, None)], vec![group(&[0])], vec![]).unwrap();
        let got = far.check(&recording, &limits, 4).unwrap_err();
        assert!(matches!(got, StepError::Index { what: "the position", .. }), "{got}");
        let mut bare = Step::new(vec![row(10, None)], vec![group(&[138])], vec![]).unwrap();
        bare.paths.clear();
        let got = bare.check(&recording, &limits, 4);
        assert_eq!(got, Err(StepError::Length { what: "groups of paths", found: 0, expected: 1 }));
    }

    #[test]
    fn inputs_have_the_rows_of_the_step_and_the_widths_of_the_recording() {
        let mut recording = crate::Recorder::default();
        let (a, b) = (recording.input("a", 3), recording.input("b", 3));
        let sum = recording.add("sum", a, b);
        let logits = recording.select_rows("logits", sum);
        let recording = recording.finish(logits).unwrap();
        assert_eq!((recording.inputs.as_slice(), recording.vocabulary()), (&[3, 3][..], None));
        let limits = Limits { max_rows: 4, max_logit_rows: 4, pages: vec![] };
        let step = Step::new(vec![row(0, None), row(1, Some(0))], vec![], vec![1]).unwrap();
        let check = |inputs| step.clone().with_inputs(inputs).check(&recording, &limits, 4);
        assert_eq!(check(vec![vec![0.0; 6]; 2]), Ok(()));
        let refused = |what, found, expected| Err(StepError::Length { what, found, expected });
        assert_eq!(check(vec![vec![0.0; 6]]), refused("inputs", 1, 2));
        assert_eq!(check(vec![vec![0.0; 6], vec![0.0; 3]]), refused("values of an input", 3, 6));
    }

    #[test]
    fn a_parent_must_come_first() {
        let got = Step::new(vec![row(5, Some(1)), row(4, None)], vec![group(&[0, 1])], vec![]);
        assert_eq!(got.unwrap_err(), StepError::Parent { row: 0, parent: 1 });
    }
}
