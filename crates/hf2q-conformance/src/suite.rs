//! Runs the cases on a backend and on the reference.

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_plan::{
    Backend, BackendError, Limits, NamedOp, Observer, Plan, Row, RowKind, Step, TensorId, TensorKind, Tensors,
};
use hf2q_reference::ReferenceBackend;

use crate::builder::{Built, Guard};
use crate::cases::{self, Case, Feed, TOKENS};
use crate::compare::{distance, first_difference, same_bits, square_error};
use crate::error::ConformanceError;
use crate::inputs::inputs;
use crate::random::Random;
use crate::report::{CaseReport, Outcome, Report};
use crate::traffic::{Traffic, TrafficOptions, Turn};

const TURNS: usize = 7;
const TRAFFIC: TrafficOptions =
    TrafficOptions { vocabulary: 256, sequences: 3, max_len: 200, max_rows: 90, max_nodes: 9 };

/// Runs every case. Each is compared with the reference by normalized mean square error; its results must not
/// change a bit with other rows beside them or with other activations around them; and activations that the
/// operation does not declare must keep theirs.
pub fn suite(backend: &dyn Backend) -> Report {
    suite_of(backend, |_| true)
}

/// [`suite`] for the operations that `wanted` names (see [`hf2q_plan::Op::kind`]).
pub fn suite_of(backend: &dyn Backend, wanted: impl Fn(&str) -> bool) -> Report {
    let run = |case: Case| {
        let outcome = match check(&case, backend) {
            Ok(nmse) => Outcome::Passed { nmse },
            Err(Problem::Unsupported(why)) => Outcome::Unsupported { why },
            Err(Problem::Wrong(why)) => Outcome::Failed { why },
        };
        CaseReport { op: case.op, case: case.name, outcome }
    };
    let cases = cases::all().into_iter().filter(|c| wanted(c.op)).map(run).collect();
    Report { backend: backend.describe(), cases }
}

/// Whether all backends (other instruction sets, other numbers of threads) give the bits of the first in every case
/// of the operations that `wanted` names.
pub fn agreement(backends: &[&dyn Backend], wanted: impl Fn(&str) -> bool) -> Report {
    let report = |case: Case| {
        let outcome = match agree(&case, backends) {
            Ok(()) => Outcome::Passed { nmse: 0.0 },
            Err(Problem::Unsupported(why)) => Outcome::Unsupported { why },
            Err(Problem::Wrong(why)) => Outcome::Failed { why },
        };
        CaseReport { op: case.op, case: case.name, outcome }
    };
    let cases = cases::all().into_iter().filter(|c| wanted(c.op)).map(report).collect();
    let names: Vec<String> = backends.iter().map(|b| b.describe()).collect();
    Report { backend: names.join(" | "), cases }
}

enum Problem {
    Unsupported(String),
    Wrong(String),
}

impl Problem {
    fn within(self, place: &str) -> Self {
        match self {
            Self::Unsupported(why) => Self::Unsupported(format!("{place}: {why}")),
            Self::Wrong(why) => Self::Wrong(format!("{place}: {why}")),
        }
    }
}

impl<E: Into<ConformanceError>> From<E> for Problem {
    fn from(e: E) -> Self {
        match e.into() {
            ConformanceError::Backend(BackendError::Unsupported { why, .. }) => Self::Unsupported(why),
            e => Self::Wrong(e.to_string()),
        }
    }
}

/// One pass over the steps of a case.
struct Run {
    turns: Vec<Turn>,
    /// By turn.
    logits: Vec<Vec<f32>>,
    /// By turn: what the observer saw.
    seen: Vec<Seen>,
    width: usize,
}

/// Returns the error of all steps together.
fn check(case: &Case, backend: &dyn Backend) -> Result<f64, Problem> {
    let expected = run(case, &ReferenceBackend, false, true)?;
    let found = run(case, backend, false, false)?;
    let error = close(case, (&found.logits, &expected.logits), expected.width)?;
    rows_stand_alone(case, &found)?;
    let guarded = run(case, backend, true, true)?;
    for (t, (f, g)) in found.logits.iter().zip(&guarded.logits).enumerate() {
        if !same_bits(g, f) {
            let what = first_difference(g, f);
            return Err(Problem::Wrong(format!("step {t} changes with activations around it: {what}")));
        }
    }
    observed(case, &guarded, &expected)?;
    Ok(error)
}

/// Compares the results of all steps at once: those of one row alone may all lie near zero.
fn close(case: &Case, (found, expected): (&[Vec<f32>], &[Vec<f32>]), width: usize) -> Result<f64, Problem> {
    for (t, (f, e)) in found.iter().zip(expected).enumerate() {
        if f.len() != e.len() {
            return Err(Problem::Wrong(format!("step {t}: {}", first_difference(f, e))));
        }
    }
    let d = distance(&found.concat(), &expected.concat(), width);
    let accepted = case.precision.tolerance();
    if accepted.accepts(d) {
        return Ok(d.total);
    }
    let rows = found.iter().zip(expected).enumerate().flat_map(|(t, (f, e))| {
        f.chunks(width).zip(e.chunks(width)).enumerate().map(move |(r, (f, e))| (t, r, square_error(f, e)))
    });
    let worst = rows.max_by(|a, b| a.2.total_cmp(&b.2)).map_or((0, 0), |(t, r, _)| (t, r));
    Err(Problem::Wrong(format!(
        "error {:.1e} in all and {:.1e} in the worst row (row {} of step {}), accepted {accepted}",
        d.total, d.worst_row, worst.1, worst.0
    )))
}

fn agree(case: &Case, backends: &[&dyn Backend]) -> Result<(), Problem> {
    let mut first: Option<Vec<Vec<f32>>> = None;
    for &backend in backends {
        let run = run(case, backend, false, false)?;
        let expected = first.get_or_insert_with(|| run.logits.clone());
        for (t, (f, e)) in run.logits.iter().zip(expected).enumerate() {
            if !same_bits(f, e) {
                let what = first_difference(f, e);
                return Err(Problem::Wrong(format!("{}: step {t}: {what}", backend.describe())));
            }
        }
    }
    Ok(())
}

fn run(case: &Case, backend: &dyn Backend, guarded: bool, observe: bool) -> Result<Run, Problem> {
    let Built { recording, weights, guards } = case.build(guarded)?;
    let plan = Arc::new(Plan::compile(recording.clone(), case.passes));
    let (mut turns, limits) = match case.feed {
        Feed::Rows => (row_turns()?, Limits { max_rows: TOKENS, max_logit_rows: TOKENS, pages: vec![] }),
        Feed::Traffic(seed) => {
            let mut traffic = Traffic::new(&recording, TRAFFIC, Random::new("suite", seed));
            let turns = (0..TURNS).map(|_| traffic.next()).collect::<Result<Vec<_>, _>>()?;
            (turns, Traffic::limits(&recording, TRAFFIC))
        }
    };
    for turn in &mut turns {
        turn.step.inputs = inputs(&recording, &turn.step.rows);
    }
    let mut program = backend.open(Arc::clone(&plan), weights, &limits)?;
    let (mut logits, mut seen) = (vec![], vec![]);
    for turn in &turns {
        let mut eye =
            Eye { op: case.op, plan: &plan, guards: &guards, step: &turn.step, seen: Seen::default() };
        logits.push(turn.run(&mut *program, observe.then_some(&mut eye as &mut dyn Observer))?);
        seen.push(eye.seen);
    }
    Ok(Run { turns, logits, seen, width: recording.logits.width })
}

/// Steps of any rows: there is no cache. The first holds every token.
fn row_turns() -> Result<Vec<Turn>, ConformanceError> {
    let every: Vec<u32> = (0..TOKENS as u32).collect();
    let mut shuffled = every.clone();
    Random::new("rows", 1).shuffle(&mut shuffled);
    let third = |n: u32| (0..n).step_by(3).collect::<Vec<u32>>();
    let all = |n: u32| (0..n).collect::<Vec<u32>>();
    [
        (every.clone(), all(129)),
        (every[..1].to_vec(), all(1)),
        (every[5..8].to_vec(), all(3)),
        (every[100..117].to_vec(), all(17)),
        (every[20..84].to_vec(), third(64)),
        (shuffled, third(129)),
        (every[128..].to_vec(), vec![]),
    ]
    .into_iter()
    .map(|(tokens, logit_rows)| {
        let row = |&token: &u32| Row { sequence: 0, token, position: position(token), parent: None };
        let rows: Vec<Row> = tokens.iter().map(row).collect();
        let (histories, drafted) = (vec![vec![]; rows.len()], vec![false; rows.len()]);
        Ok(Turn { step: Step::new(rows, vec![], logit_rows)?, histories, drafted, moves: vec![] })
    })
    .collect()
}

/// Small ones, and some far out.
fn position(token: u32) -> u32 {
    if token < 70 { token } else { 13 * token }
}

/// The result of a token must be that of the first step, whatever rows are beside it.
fn rows_stand_alone(case: &Case, run: &Run) -> Result<(), Problem> {
    if case.feed != Feed::Rows {
        return Ok(());
    }
    let mut first: HashMap<u32, &[f32]> = HashMap::new();
    for (t, (turn, logits)) in run.turns.iter().zip(&run.logits).enumerate() {
        for (&r, row) in turn.step.logit_rows.iter().zip(logits.chunks_exact(run.width)) {
            let token = turn.step.rows[r as usize].token;
            let expected = *first.entry(token).or_insert(row);
            if !same_bits(row, expected) {
                return Err(Problem::Wrong(format!(
                    "the row of token {token} differs in step {t} of {} rows from that in a step of {TOKENS}: {}",
                    turn.step.len(),
                    first_difference(row, expected)
                )));
            }
        }
    }
    Ok(())
}

/// What an observer saw of the guarded run: guards as they were, and the operation's outputs as the reference's.
fn observed(case: &Case, found: &Run, expected: &Run) -> Result<(), Problem> {
    for (t, (f, e)) in found.seen.iter().zip(&expected.seen).enumerate() {
        if let Some(fault) = f.faults.first() {
            return Err(Problem::Wrong(format!("step {t}: {fault}")));
        }
        if f.indices != e.indices {
            return Err(Problem::Wrong(format!("step {t}: other experts are chosen than by the reference")));
        }
        if f.values.len() != e.values.len() || f.values.is_empty() {
            return Err(Problem::Wrong(format!(
                "step {t}: an observer sees {} outputs of the operation instead of {}",
                f.values.len(),
                e.values.len()
            )));
        }
    }
    let outputs = expected.seen.first().map_or(0, |s| s.values.len());
    for i in 0..outputs {
        let all = |run: &Run| run.seen.iter().map(|s| s.values[i].1.clone()).collect::<Vec<_>>();
        close(case, (&all(found), &all(expected)), expected.seen[0].values[i].0)
            .map_err(|p| p.within("as an observer sees it"))?;
    }
    Ok(())
}

/// What an observer noted in one step.
#[derive(Default)]
struct Seen {
    /// Width and values of each activation that an operation of the case's kind wrote.
    values: Vec<(usize, Vec<f32>)>,
    indices: Vec<Vec<i32>>,
    faults: Vec<String>,
}

struct Eye<'a> {
    op: &'static str,
    plan: &'a Plan,
    guards: &'a [Guard],
    step: &'a Step,
    seen: Seen,
}

impl Eye<'_> {
    fn output(&mut self, id: TensorId, tensors: &dyn Tensors) {
        let tensor = &self.plan.recording.tensors[id.index()];
        let missing = || format!("{} cannot be observed", tensor.name);
        match tensor.kind {
            TensorKind::Activation { width, .. } => match tensors.values(id) {
                Some(values) => self.seen.values.push((width, values)),
                None => self.seen.faults.push(missing()),
            },
            TensorKind::Indices { .. } => match tensors.indices(id) {
                Some(indices) => self.seen.indices.push(indices),
                None => self.seen.faults.push(missing()),
            },
            TensorKind::Weight(_) | TensorKind::Cache(_) => {}
        }
    }

    fn guard(&self, guard: &Guard, tensors: &dyn Tensors) -> Option<String> {
        let tokens: Vec<u32> = match guard.kind {
            RowKind::Step => self.step.rows.iter().map(|r| r.token).collect(),
            RowKind::Logits => {
                self.step.logit_rows.iter().map(|&r| self.step.rows[r as usize].token).collect()
            }
        };
        let row = |&t: &u32| &guard.table[t as usize * guard.width..(t as usize + 1) * guard.width];
        let expected: Vec<f32> = tokens.iter().flat_map(row).copied().collect();
        let Some(found) = tensors.values(guard.out) else {
            return Some(format!("what {} writes cannot be observed", guard.check));
        };
        let same = same_bits(&found, &expected);
        (!same).then(|| {
            let what = first_difference(&found, &expected);
            format!("an activation that no operation declares changed ({}): {what}", guard.check)
        })
    }
}

impl Observer for Eye<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        // Guards have operations of their own, which are none of the case's.
        let guard = op.name.starts_with("guard");
        (op.op.kind() == self.op && !guard && op.name != "result") || op.name.ends_with(".check")
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let guards = self.guards;
        match guards.iter().find(|g| g.check == op.name) {
            Some(guard) => {
                let fault = self.guard(guard, tensors);
                self.seen.faults.extend(fault);
            }
            None => {
                for id in op.op.access().writes {
                    self.output(id, tensors);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_cases_and_every_case_its_operation() {
        let kinds: Vec<&str> = cases::all().iter().map(|c| c.op).collect();
        for kind in [
            "embed",
            "input",
            "rms_norm",
            "mat_mul",
            "rope",
            "attention",
            "add",
            "scale",
            "soft_cap",
            "glu",
            "route",
            "expert_mat_mul",
            "expert_sum",
            "select_rows",
            "norm_add",
            "norm_rope",
        ] {
            assert!(kinds.contains(&kind), "{kind}");
        }
        let mut names = std::collections::HashSet::new();
        for case in cases::all() {
            let built = case.build(true).unwrap();
            let plan = Plan::compile(built.recording, case.passes);
            assert!(plan.recording.ops.iter().any(|o| o.op.kind() == case.op), "{} {}", case.op, case.name);
            assert!(names.insert((case.op, case.name.clone())), "{} {} twice", case.op, case.name);
        }
    }
}
