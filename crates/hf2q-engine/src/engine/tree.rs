//! Drafted rows: where they are stored, which stay.

use hf2q_plan::PAGE;

use super::{Engine, SequenceId};
use crate::draft::DraftTree;
use crate::error::EngineError;
use crate::sequence::Sequence;

/// Rows behind the end of a sequence that may become part of it. The first child of what ends the sequence, the first child of
/// that and so on lie where they would lie if they stay; all others in spare pages.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: DraftTree,
    /// Level of each node, from 1.
    pub(crate) depths: Vec<usize>,
    /// Position of the first level.
    from: usize,
    /// Of each node: its number among those in spare pages; `None`: it lies in its place.
    apart: Vec<Option<usize>>,
    /// Pages of each group.
    pub(crate) spare: Vec<Vec<u32>>,
}

impl Tree {
    /// Without nodes, for a sequence that will end before position `from`.
    pub(crate) fn new(from: usize, groups: usize) -> Self {
        let nodes = DraftTree::new();
        Self { nodes, depths: Vec::new(), from, apart: Vec::new(), spare: vec![Vec::new(); groups] }
    }

    /// Takes the nodes of `all` that it lacks; they are in its order.
    pub(crate) fn grow(&mut self, all: &DraftTree) {
        let mut apart = self.apart.iter().flatten().count();
        for i in self.nodes.len()..all.len() {
            let parent = all.parents[i];
            let first = !self.nodes.parents.contains(&parent);
            let in_place = first && parent.is_none_or(|p| self.apart[p].is_none());
            self.apart.push((!in_place).then_some(apart));
            apart += usize::from(!in_place);
            self.depths.push(1 + parent.map_or(0, |p| self.depths[p]));
            self.nodes.push(all.tokens[i], parent);
        }
    }

    /// The deepest level.
    pub(crate) fn depth(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// Spare pages of each group that the nodes need.
    pub(crate) fn spare_pages(&self) -> usize {
        self.apart.iter().flatten().count().div_ceil(PAGE)
    }

    /// Position of a node.
    pub(crate) fn position(&self, node: usize) -> usize {
        self.from + self.depths[node] - 1
    }

    /// Slot of a node of `sequence`.
    pub(crate) fn slot(&self, sequence: &Sequence, group: usize, node: usize) -> u32 {
        match self.apart[node] {
            None => sequence.slot(group, self.position(node)),
            Some(n) => self.spare[group][n / PAGE] * PAGE as u32 + (n % PAGE) as u32,
        }
    }

    pub(crate) fn is_in_place(&self, node: usize) -> bool {
        self.apart[node].is_none()
    }

    /// The node and what it continues that lies apart, from the first level on.
    pub(super) fn line_apart(&self, node: usize) -> Vec<usize> {
        let above = |&n: &usize| self.nodes.parents[n];
        let mut line: Vec<usize> =
            std::iter::successors(Some(node), above).take_while(|&n| !self.is_in_place(n)).collect();
        line.reverse();
        line
    }

    /// Whether each node of `path` continues the one before, and the first one the sequence.
    fn has(&self, path: &[usize]) -> bool {
        let above = std::iter::once(None).chain(path.iter().map(|&n| Some(n)));
        path.iter().zip(above).all(|(&n, above)| self.nodes.parents.get(n) == Some(&above))
    }
}

impl DraftTree {
    /// Why it is no tree that an engine could compute behind one that has `first`.
    pub(super) fn fault(&self, first: Option<&DraftTree>) -> Option<String> {
        if self.parents.len() != self.tokens.len() {
            return Some(format!("it has {} tokens and {} parents", self.tokens.len(), self.parents.len()));
        }
        if let Some(i) = (0..self.len()).find(|&i| self.parents[i].is_some_and(|p| p >= i)) {
            return Some(format!("node {i} continues a later node or itself"));
        }
        let (old, here) = (first?, first?.len());
        let same = here < self.len()
            && old.tokens[..] == self.tokens[..here]
            && old.parents[..] == self.parents[..here];
        (!same)
            .then(|| format!("it does not begin with the {here} nodes that were computed, or has no others"))
    }
}

impl Engine {
    /// Keeps the nodes `path` of the tree of the last step, each of which continues the one before: the sequence has their
    /// tokens then. All other nodes are gone, and so are their pages.
    ///
    /// # Errors
    /// The sequence has no tree, `path` is none of its lines, or the backend fails: no node is kept then.
    pub fn accept(&mut self, id: SequenceId, path: &[usize]) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        let sequence = sequence.ok_or(EngineError::UnknownSequence(id.0))?;
        let whole = sequence.tree.as_ref().is_some_and(|tree| tree.has(path));
        if !whole && !path.is_empty() {
            let why = format!("{path:?} is no line of nodes of the last step");
            return Err(EngineError::Tree { sequence: id.0, why });
        }
        let moved = self.cache.settle(sequence, path, &mut *self.program);
        let tokens: Vec<u32> = match (&moved, &sequence.tree) {
            (Ok(()), Some(tree)) => path.iter().map(|&n| tree.nodes.tokens[n]).collect(),
            _ => Vec::new(),
        };
        let before = sequence.len();
        sequence.tokens.extend(tokens);
        self.cache.drop_tree(sequence);
        self.cache.advance(sequence, before);
        moved
    }

    /// Takes the end of a sequence away, so that it holds `len` tokens.
    ///
    /// # Errors
    /// It is shorter, or pages that the next row would see are gone: those behind a window, and of recent positions those
    /// before the last border of pages. There is no page for a copy of what remains of one that others use. The sequence is as it
    /// was then. (If the backend fails, it ends at the border of pages before `len`.)
    pub fn rewind(&mut self, id: SequenceId, len: usize) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        let sequence = sequence.ok_or(EngineError::UnknownSequence(id.0))?;
        if !self.cache.can_rewind(sequence, len) {
            return Err(EngineError::Rewind { sequence: id.0, held: sequence.len(), len });
        }
        self.cache.rewind(sequence, len, &mut *self.program)
    }
}
