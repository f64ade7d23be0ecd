//! A row's logits depend on that row's history alone, bit for bit.
//!
//! The oracle feeds one token at a time to one sequence. The same histories then come in random mixes of
//! sequences, chunks and draft trees over shuffled pages, through windows and across page borders, with drafts
//! accepted and sequences replaced; every wanted row must have the oracle's logits.

use hf2q_plan::{Backend, GroupStep, Limits, PAGE, Passes, Program, Recording, Row, Step};

use crate::compare::{first_difference, same_bits};
use crate::error::ConformanceError;
use crate::inputs::inputs;
use crate::random::Random;
use crate::subject::Subject;
use crate::traffic::{Traffic, TrafficOptions, Turn};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Determines everything.
    pub seed: u64,
    /// Steps.
    pub turns: usize,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Tokens after which a sequence is replaced by a new one.
    pub max_len: usize,
    /// Rows of a step.
    pub max_rows: usize,
    /// Rows of a draft tree; 0: no trees.
    pub max_nodes: usize,
    /// Fusion, the same for all programs.
    pub passes: Passes,
}

impl Default for Options {
    /// Crosses two page borders with chunks longer than a page.
    fn default() -> Self {
        Self {
            seed: 1,
            turns: 25,
            sequences: 3,
            max_len: 170,
            max_rows: 96,
            max_nodes: 10,
            passes: Passes::ALL,
        }
    }
}

/// A row whose logits are not those of its history.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{backend}: step {turn} of {rows} rows, row {row} (sequence {sequence}, position {position}{}): {what}",
    if *drafted { ", drafted" } else { "" }
)]
pub struct Violation {
    /// Whose.
    pub backend: String,
    /// Number of the step.
    pub turn: usize,
    /// Rows of the step.
    pub rows: usize,
    /// The row.
    pub row: usize,
    /// Its sequence.
    pub sequence: u32,
    /// Its position.
    pub position: u32,
    /// Whether it is in a draft tree.
    pub drafted: bool,
    /// The first value that differs.
    pub what: String,
}

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows whose logits were compared, in all backends.
    pub rows: usize,
    /// Those of them in draft trees.
    pub drafted: usize,
    /// The first violation of each backend that has one.
    pub violations: Vec<String>,
}

/// Feeds `subject` one token at a time to `oracle`, and random traffic to every one of `backends`.
///
/// # Errors
/// If a program fails. Violations are reported in the summary.
pub fn check(
    oracle: &dyn Backend,
    backends: &[&dyn Backend],
    subject: &Subject,
    options: Options,
) -> Result<Summary, ConformanceError> {
    let traffic = TrafficOptions {
        vocabulary: subject.vocabulary()?,
        sequences: options.sequences,
        max_len: options.max_len,
        max_rows: options.max_rows,
        max_nodes: options.max_nodes,
    };
    let longest = options.max_len + options.max_nodes;
    let mut oracles = (0..options.sequences)
        .map(|_| Oracle::open(oracle, subject, options.passes, longest))
        .collect::<Result<Vec<_>, _>>()?;
    let limits = Traffic::limits(&subject.recording, traffic);
    let mut programs = backends
        .iter()
        .map(|b| Ok((b.describe(), subject.open(*b, options.passes, &limits)?, false)))
        .collect::<Result<Vec<_>, ConformanceError>>()?;
    let mut source = Traffic::new(&subject.recording, traffic, Random::new("invariance", options.seed));
    let mut summary = Summary::default();
    for turn_index in 0..options.turns {
        let mut turn = source.next()?;
        turn.step.inputs = inputs(&subject.recording, &turn.step.rows);
        let expected = expected(&mut oracles, &turn)?;
        for (name, program, failed) in programs.iter_mut().filter(|(_, _, failed)| !failed) {
            let found = turn.run(&mut **program, None)?;
            summary.rows += expected.len();
            summary.drafted += turn.step.logit_rows.iter().filter(|&&r| turn.drafted[r as usize]).count();
            if let Some(violation) = compare(&found, &expected, &turn) {
                let violation = Violation { backend: name.clone(), turn: turn_index, ..violation };
                summary.violations.push(violation.to_string());
                *failed = true;
            }
        }
    }
    Ok(summary)
}

fn expected(oracles: &mut [Oracle], turn: &Turn) -> Result<Vec<Vec<f32>>, ConformanceError> {
    let one = |&r: &u32| {
        let sequence = turn.step.rows[r as usize].sequence as usize;
        oracles[sequence].logits(&turn.histories[r as usize])
    };
    turn.step.logit_rows.iter().map(one).collect()
}

fn compare(found: &[f32], expected: &[Vec<f32>], turn: &Turn) -> Option<Violation> {
    let width = found.len() / expected.len().max(1);
    for (l, (&r, expected)) in turn.step.logit_rows.iter().zip(expected).enumerate() {
        let found = &found[l * width..(l + 1) * width];
        if same_bits(found, expected) && expected.iter().all(|x| x.is_finite()) {
            continue;
        }
        let row = turn.step.rows[r as usize];
        return Some(Violation {
            backend: String::new(),
            turn: 0,
            rows: turn.step.len(),
            row: r as usize,
            sequence: row.sequence,
            position: row.position,
            drafted: turn.drafted[r as usize],
            what: first_difference(found, expected),
        });
    }
    None
}

/// One sequence, one token a step, pages in order.
struct Oracle {
    program: Box<dyn Program>,
    recording: Recording,
    pages: u32,
    /// Tokens whose keys and values are stored, and the logits after each.
    fed: Vec<(u32, Vec<f32>)>,
}

impl Oracle {
    fn open(
        backend: &dyn Backend,
        subject: &Subject,
        passes: Passes,
        longest: usize,
    ) -> Result<Self, ConformanceError> {
        let pages = longest.div_ceil(PAGE);
        let recording = subject.recording.clone();
        let limits = Limits { max_rows: 1, max_logit_rows: 1, pages: vec![pages; recording.groups.len()] };
        let program = subject.open(backend, passes, &limits)?;
        Ok(Self { program, recording, pages: pages as u32, fed: vec![] })
    }

    /// Logits after the last token of `history`. What is fed already is kept as far as it agrees.
    fn logits(&mut self, history: &[u32]) -> Result<Vec<f32>, ConformanceError> {
        let common = self.fed.iter().zip(history).take_while(|((fed, _), token)| fed == *token).count();
        if common == history.len() {
            return Ok(self.fed[common - 1].1.clone());
        }
        self.fed.truncate(common);
        for &token in &history[common..] {
            let position = self.fed.len() as u32;
            let group = GroupStep {
                slots: vec![position],
                page_tables: (0..self.pages).collect(),
                pages_per_sequence: self.pages as usize,
            };
            let row = Row { sequence: 0, token, position, parent: None };
            let step = Step::new(vec![row], vec![group; self.recording.groups.len()], vec![0])?
                .with_inputs(inputs(&self.recording, &[row]));
            let logits = self.program.run(&step, None)?.to_vec();
            self.fed.push((token, logits));
        }
        Ok(self.fed[self.fed.len() - 1].1.clone())
    }
}
