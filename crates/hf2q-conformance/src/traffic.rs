//! Random work as an engine would give it: chunks and draft trees of several sequences in one step, shuffled
//! pages, accepted drafts, sequences that end and begin.

use std::collections::HashSet;

use hf2q_plan::{GroupId, Limits, Observer, PAGE, Program, Recording, Row, SlotMove, Step};

use crate::error::ConformanceError;
use crate::paging::Pages;
use crate::random::Random;

/// How large the traffic gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficOptions {
    pub(crate) vocabulary: usize,
    pub(crate) sequences: usize,
    /// Tokens after which a sequence ends.
    pub(crate) max_len: usize,
    /// Rows of a step.
    pub(crate) max_rows: usize,
    /// Rows of a draft tree; 0: no trees.
    pub(crate) max_nodes: usize,
}

/// One step and what follows it.
pub(crate) struct Turn {
    pub(crate) step: Step,
    /// For each row: all tokens of its history, itself included.
    pub(crate) histories: Vec<Vec<u32>>,
    /// For each row: whether a draft tree holds it.
    pub(crate) drafted: Vec<bool>,
    /// Moves that settle accepted drafts, to be made after the step.
    pub(crate) moves: Vec<(GroupId, Vec<SlotMove>)>,
}

/// Rows of one sequence, before they are mixed with those of others; parents count within the part.
struct Part {
    sequence: usize,
    rows: Vec<(u32, Option<usize>)>,
    tree: bool,
}

pub(crate) struct Traffic {
    options: TrafficOptions,
    random: Random,
    pages: Pages,
    group_ids: Vec<Option<GroupId>>,
    /// Tokens of each sequence that are settled.
    tokens: Vec<Vec<u32>>,
}

impl Traffic {
    pub(crate) fn new(recording: &Recording, options: TrafficOptions, random: Random) -> Self {
        let pages = Pages::new(&recording.groups, pages(options), (options.sequences, random.clone()));
        let group_ids = (0..recording.groups.len())
            .map(|g| recording.caches.iter().map(|c| c.group).find(|id| id.index() == g))
            .collect();
        Self { options, random, pages, group_ids, tokens: vec![vec![]; options.sequences] }
    }

    /// What a program needs to be opened with.
    pub(crate) fn limits(recording: &Recording, options: TrafficOptions) -> Limits {
        Limits {
            max_rows: options.max_rows,
            max_logit_rows: options.max_rows,
            pages: vec![pages(options); recording.groups.len()],
        }
    }

    pub(crate) fn next(&mut self) -> Result<Turn, ConformanceError> {
        self.pages.release_spare();
        let parts = self.parts();
        let (rows, origin) = self.mix(&parts);
        let mut histories: Vec<Vec<u32>> = vec![];
        for row in &rows {
            let before = match row.parent {
                Some(p) => &histories[p as usize],
                None => &self.tokens[row.sequence as usize],
            };
            histories.push([before.as_slice(), &[row.token]].concat());
        }
        let drafted: Vec<bool> = origin.iter().map(|&(part, _)| parts[part].tree).collect();
        let apart: HashSet<usize> =
            (0..rows.len()).filter(|&i| drafted[i] && self.random.chance(25)).collect();
        let wanted = self.wanted(rows.len());
        let step = self.pages.step(&rows, &wanted, &apart)?;
        let mut accepted = vec![];
        for (p, part) in parts.iter().enumerate() {
            let mine: Vec<usize> = (0..rows.len()).filter(|&i| origin[i].0 == p).collect();
            accepted.extend(self.accept(part, &mine, &step, &histories));
        }
        let moves = self.pages.settle(&step, &accepted)?;
        let moves = self.group_ids.iter().copied().zip(moves).filter_map(|(id, m)| Some((id?, m))).collect();
        for s in 0..self.options.sequences {
            if self.random.chance(70) {
                self.pages.drop_behind_window(s, self.tokens[s].len());
            }
        }
        Ok(Turn { step, histories, drafted, moves })
    }

    /// Decides which rows stay: all of a chunk, one path (or nothing) of a tree.
    fn accept(&mut self, part: &Part, mine: &[usize], step: &Step, histories: &[Vec<u32>]) -> Vec<usize> {
        let last = if part.tree { mine[self.random.below(mine.len())] } else { mine[mine.len() - 1] };
        if part.tree && self.random.chance(20) {
            return vec![];
        }
        self.tokens[part.sequence].clone_from(&histories[last]);
        if !part.tree {
            return vec![];
        }
        let mut path = vec![last];
        while let Some(parent) = step.rows[path[path.len() - 1]].parent {
            path.push(parent as usize);
        }
        path.reverse();
        path
    }

    fn parts(&mut self) -> Vec<Part> {
        let mut parts = vec![];
        let mut room = self.options.max_rows;
        let mut order: Vec<usize> = (0..self.options.sequences).collect();
        self.random.shuffle(&mut order);
        for sequence in order {
            if self.tokens[sequence].len() >= self.options.max_len {
                self.tokens[sequence].clear();
                self.pages.clear(sequence);
            }
            if room > 0 && (parts.is_empty() || self.random.chance(60)) {
                let part = self.part(sequence, room);
                room -= part.rows.len();
                parts.push(part);
            }
        }
        parts
    }

    fn part(&mut self, sequence: usize, room: usize) -> Part {
        let len = self.tokens[sequence].len();
        let room = room.min(self.options.max_len - len);
        let nodes = self.options.max_nodes.min(room);
        let tree = len > 0 && nodes > 0 && self.random.chance(40);
        let count = if tree {
            1 + self.random.below(nodes)
        } else {
            let to_border = PAGE - len % PAGE;
            let any = 1 + self.random.below(room);
            self.random.pick(&[1, 1, 2, 7, 17, to_border, to_border + 1, any]).min(room)
        };
        let rows = (0..count)
            .map(|i| {
                let token = self.random.below(self.options.vocabulary) as u32;
                let parent = match i {
                    0 => None,
                    _ if !tree => Some(i - 1),
                    // Chains as often as forks, and several roots.
                    _ => match self.random.below(4) {
                        0 => None,
                        1 => Some(self.random.below(i)),
                        _ => Some(i - 1),
                    },
                };
                (token, parent)
            })
            .collect();
        Part { sequence, rows, tree }
    }

    /// Rows of all parts in a random order that keeps each part's; with each its part and its place there.
    fn mix(&mut self, parts: &[Part]) -> (Vec<Row>, Vec<(usize, usize)>) {
        let mut at = vec![0; parts.len()];
        let mut index: Vec<Vec<usize>> = parts.iter().map(|_| vec![]).collect();
        let (mut rows, mut origin): (Vec<Row>, Vec<(usize, usize)>) = (vec![], vec![]);
        loop {
            let open: Vec<usize> = (0..parts.len()).filter(|&p| at[p] < parts[p].rows.len()).collect();
            if open.is_empty() {
                return (rows, origin);
            }
            let p = self.random.pick(&open);
            let (token, parent) = parts[p].rows[at[p]];
            let parent = parent.map(|q| index[p][q]);
            let sequence = parts[p].sequence;
            let position = parent.map_or(self.tokens[sequence].len() as u32, |q| rows[q].position + 1);
            index[p].push(rows.len());
            origin.push((p, at[p]));
            rows.push(Row { sequence: sequence as u32, token, position, parent: parent.map(|q| q as u32) });
            at[p] += 1;
        }
    }

    fn wanted(&mut self, rows: usize) -> Vec<u32> {
        let percent = self.random.pick(&[100, 100, 50, 10]);
        (0..rows as u32).filter(|_| self.random.chance(percent)).collect()
    }
}

impl Turn {
    /// Runs the step and settles what it accepted.
    pub(crate) fn run(
        &self,
        program: &mut dyn Program,
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<f32>, ConformanceError> {
        let logits = program.run(&self.step, observer)?.to_vec();
        for (group, moves) in &self.moves {
            program.move_slots(*group, moves)?;
        }
        Ok(logits)
    }
}

/// Every sequence at its longest, one page more for each because a tree may reach beyond, and spare pages.
fn pages(o: TrafficOptions) -> usize {
    o.sequences * (o.max_len.div_ceil(PAGE) + 1) + o.max_rows.div_ceil(PAGE) + 1
}
