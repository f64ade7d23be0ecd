//! Work becomes a step.

use hf2q_plan::{GroupStep, NO_PAGE, Row, Step};

use super::tree::Tree;
use super::{Engine, Work, count};
use crate::draft::DraftTree;
use crate::error::EngineError;
use crate::sequence::Sequence;

/// What one piece of work needs: its rows are those of its tokens, then those of its new nodes.
struct Part<'a> {
    work: &'a Work<'a>,
    sequence: &'a Sequence,
    /// Number of its page table.
    table: u32,
    /// The step's row at which it begins.
    first: usize,
    /// Its tree's first new node.
    new: usize,
}

impl<'a> Part<'a> {
    /// Its tree, if that has new nodes.
    fn tree(&self) -> Option<&'a Tree> {
        self.work.tree.and(self.sequence.tree.as_ref())
    }

    /// The row of a node that is new.
    fn row_of(&self, node: usize) -> Option<u32> {
        let tokens = self.work.tokens.len();
        node.checked_sub(self.new).map(|i| count(self.first + tokens + i))
    }

    fn rows(&self, rows: &mut Vec<Row>) {
        let (len, first) = (self.sequence.len(), count(self.first));
        let tokens = self.work.tokens;
        let row =
            |token, position, parent| Row { sequence: self.table, token, position: count(position), parent };
        for (i, &token) in tokens.iter().enumerate() {
            rows.push(row(token, len + i, i.checked_sub(1).map(|p| first + count(p))));
        }
        let Some(tree) = self.tree() else { return };
        let last = tokens.len().checked_sub(1).map(|p| first + count(p));
        for i in self.new..tree.nodes.len() {
            let parent = tree.nodes.parents[i].map_or(last, |p| self.row_of(p));
            rows.push(row(tree.nodes.tokens[i], tree.position(i), parent));
        }
    }

    fn slots(&self, group: usize, slots: &mut Vec<u32>) {
        let len = self.sequence.len();
        slots.extend((len..len + self.work.tokens.len()).map(|p| self.sequence.slot(group, p)));
        if let Some(tree) = self.tree() {
            slots.extend((self.new..tree.nodes.len()).map(|i| tree.slot(self.sequence, group, i)));
        }
    }
}

impl Engine {
    pub(super) fn check_work(&self, work: &[Work<'_>]) -> Result<(), EngineError> {
        let new = work.iter().map(|w| self.new_nodes(w)).collect::<Result<Vec<_>, _>>()?;
        let rows: usize = work.iter().zip(&new).map(|(w, new)| w.tokens.len() + new).sum();
        let empty = work.iter().zip(&new).any(|(w, &new)| w.tokens.is_empty() && new == 0);
        if rows == 0 || rows > self.options.rows || empty {
            return Err(EngineError::StepSize { what: "rows", found: rows, max: self.options.rows });
        }
        let wanted: usize = work.iter().zip(&new).map(|(w, new)| w.logits.count(w.tokens.len()) + new).sum();
        if wanted > self.options.logit_rows {
            let max = self.options.logit_rows;
            return Err(EngineError::StepSize { what: "logit rows", found: wanted, max });
        }
        for (i, w) in work.iter().enumerate() {
            if work[..i].iter().any(|v| v.sequence == w.sequence) {
                return Err(EngineError::SequenceTwice(w.sequence.0));
            }
            let depth = w.tree.and_then(|tree| tree.depths().into_iter().max()).unwrap_or(0);
            self.check_context(self.sequence(w.sequence)?.len(), w.tokens.len() + depth)?;
            let nodes = w.tree.iter().flat_map(|tree| &tree.tokens);
            if let Some(&token) = w.tokens.iter().chain(nodes).find(|&&t| t as usize >= self.tokens) {
                return Err(EngineError::Token { token, vocabulary: self.tokens });
            }
            self.check_inputs(w, w.tokens.len() + new[i])?;
        }
        Ok(())
    }

    fn check_inputs(&self, w: &Work<'_>, rows: usize) -> Result<(), EngineError> {
        let found: Vec<usize> = w.inputs.iter().map(Vec::len).collect();
        let expected: Vec<usize> = self.inputs.iter().map(|width| width * rows).collect();
        let fault = found != expected;
        if fault { Err(EngineError::Inputs { sequence: w.sequence.0, found, expected }) } else { Ok(()) }
    }

    /// How many nodes of its tree are to be computed.
    fn new_nodes(&self, w: &Work<'_>) -> Result<usize, EngineError> {
        let sequence = self.sequence(w.sequence)?;
        let Some(tree) = w.tree else { return Ok(0) };
        let held = sequence.tree.as_ref().filter(|_| w.tokens.is_empty()).map(|held| &held.nodes);
        let orphaned = !tree.is_empty() && sequence.len() + w.tokens.len() == 0;
        let orphaned = orphaned.then(|| "there is no token for it to continue".to_owned());
        match tree.fault(held).or(orphaned) {
            Some(why) => Err(EngineError::Tree { sequence: w.sequence.0, why }),
            None => Ok(tree.len() - held.map_or(0, DraftTree::len)),
        }
    }

    /// Gives rows their pages and makes a step of them.
    pub(super) fn prepare(&mut self, work: &[Work<'_>]) -> Result<Step, EngineError> {
        let groups = self.cache.groups();
        let mut new = Vec::new();
        for w in work {
            let sequence =
                self.sequences[w.sequence.0].as_mut().ok_or(EngineError::UnknownSequence(w.sequence.0))?;
            if !w.tokens.is_empty() {
                self.cache.drop_tree(sequence);
            }
            new.push(sequence.tree.as_ref().map_or(0, |tree| tree.nodes.len()));
            if let Some(tree) = w.tree.filter(|tree| !tree.is_empty()) {
                let from = sequence.len() + w.tokens.len();
                sequence.tree.get_or_insert_with(|| Tree::new(from, groups)).grow(tree);
            }
        }
        self.reserve(work)?;
        self.build(work, &new)
    }

    fn reserve(&mut self, work: &[Work<'_>]) -> Result<(), EngineError> {
        for g in 0..self.cache.groups() {
            let sequences = &mut self.sequences;
            for sequence in sequences.iter_mut().flatten() {
                self.cache.drop_reserved(sequence, g);
            }
            let needed = work.iter().filter_map(|w| {
                let sequence = sequences[w.sequence.0].as_ref()?;
                let spare = sequence.spare_needed(g);
                Some(sequence.pages_needed(g, w.tokens.len()) + spare)
            });
            self.cache.make_room(g, needed.sum())?;
            for w in work {
                if let Some(sequence) = &mut sequences[w.sequence.0] {
                    self.cache.reserve(sequence, g, w.tokens.len())?;
                }
            }
        }
        Ok(())
    }

    fn build(&self, work: &[Work<'_>], new: &[usize]) -> Result<Step, EngineError> {
        let mut rows = Vec::new();
        let mut logit_rows = Vec::new();
        let mut parts = Vec::new();
        for ((work, table), &new) in work.iter().zip(0..).zip(new) {
            let sequence = self.sequence(work.sequence)?;
            let part = Part { work, sequence, table, first: rows.len(), new };
            part.rows(&mut rows);
            let (first, nodes) = (count(part.first), count(part.first + work.tokens.len()));
            logit_rows.extend(work.logits.of(first..nodes));
            logit_rows.extend(nodes..count(rows.len()));
            parts.push(part);
        }
        let groups = (0..self.cache.groups()).map(|g| group_step(g, &parts)).collect();
        let mut step = Step::new(rows, groups, logit_rows)?;
        follow(&mut step, &parts);
        let of_all = |i: usize| work.iter().flat_map(|w| w.inputs[i].iter().copied()).collect();
        step.inputs = (0..self.inputs.len()).map(of_all).collect();
        Ok(step)
    }
}

fn group_step(g: usize, parts: &[Part<'_>]) -> GroupStep {
    let mut step = GroupStep::default();
    for part in parts {
        step.pages_per_sequence = step.pages_per_sequence.max(part.sequence.tables[g].len());
        part.slots(g, &mut step.slots);
    }
    for part in parts {
        let start = step.page_tables.len();
        step.page_tables.extend_from_slice(&part.sequence.tables[g]);
        step.page_tables.resize(start + step.pages_per_sequence, NO_PAGE);
    }
    step
}

/// A step knows the paths of its own rows. Where a tree has grown, they begin with nodes of earlier steps.
fn follow(step: &mut Step, parts: &[Part<'_>]) {
    let grown = |part: &&Part<'_>| part.new > 0 && part.tree().is_some();
    if !parts.iter().any(|part| grown(&part)) {
        return;
    }
    let mut paths: Vec<Vec<Vec<u32>>> = vec![vec![Vec::new(); step.groups.len()]; step.len()];
    for (row, of_row) in paths.iter_mut().enumerate() {
        let position = step.rows[row].position;
        let depth = (position + 1).saturating_sub(step.tree_base[row]) as usize;
        for (g, path) in of_row.iter_mut().enumerate() {
            let at = row * step.path_len;
            *path = step.paths[g][at..at + depth].to_vec();
        }
    }
    for part in parts.iter().filter(grown) {
        let Some(tree) = part.tree() else { continue };
        for node in part.new..tree.nodes.len() {
            let Some(row) = part.row_of(node).map(|row| row as usize) else { continue };
            let line = tree.line_apart(node);
            step.tree_base[row] = step.rows[row].position + 1 - count(line.len());
            for (g, path) in paths[row].iter_mut().enumerate() {
                *path = line.iter().map(|&n| tree.slot(part.sequence, g, n)).collect();
            }
        }
    }
    let longest = paths.iter().flatten().map(Vec::len).max().unwrap_or(0);
    step.path_len = longest;
    for (g, flat) in step.paths.iter_mut().enumerate() {
        flat.clear();
        for of_row in &paths {
            let end = flat.len() + longest;
            flat.extend_from_slice(&of_row[g]);
            flat.resize(end, 0);
        }
    }
}
