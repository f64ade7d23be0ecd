//! Which operations are launched together where nobody watches a step: a launch has a cost, and what one operation writes
//! another reads at once.
//!
//! Operations keep their order but where moving one touches nothing that others touch in between.

use std::collections::HashSet;
use std::ops::Range;

use hf2q_plan::{Access, BackendError, ExpertInput, NamedOp, Op, Plan, Recording, RowKind, TensorId, View};

use crate::compile::Compiler;
use crate::launch::heads::{self, on_heads};
use crate::launch::row_program::{self, Wanted};
use crate::launch::{Call, Region, attention, mat_mul, mat_mul_one, mat_mul_quantize};
use crate::lower::lower as lower_one;
use crate::order;

/// Operations of one launch, by their positions in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One, as it is.
    One(usize),
    /// Operations on whole rows, in order.
    Rows(Vec<usize>),
    /// What is done to queries, keys and values before these are stored, and the storing.
    Heads { before: [Option<usize>; 3], store: usize },
    /// Gated units that products read quantized, so many rows for each.
    Gated(usize, usize),
    /// Attention whose result products read quantized.
    Attention(usize),
}

impl Part {
    /// Its operations.
    pub(crate) fn ops(&self) -> Vec<usize> {
        match self {
            Self::One(i) | Self::Gated(i, _) | Self::Attention(i) => vec![*i],
            Self::Rows(ops) => ops.clone(),
            Self::Heads { before, store } => before.iter().flatten().chain([store]).copied().collect(),
        }
    }
}

/// Parts of a plan, in the order of their launches. A block of threads may use `shared` bytes.
pub(crate) fn parts(plan: &Plan, shared: usize) -> Vec<Part> {
    let recording = &plan.recording;
    let access: Vec<Access> = recording.ops.iter().map(|op| op.op.access()).collect();
    if !written_once(recording, &access) {
        return (0..access.len()).map(Part::One).collect();
    }
    let mut fuser = Fuser { recording, access, shared, parts: Vec::new(), open: None };
    for i in 0..recording.ops.len() {
        fuser.add(i);
    }
    order::by_level(&fuser.access, fuser.parts)
}

/// Whether each activation has one value only, as all rules here take for granted.
fn written_once(recording: &Recording, access: &[Access]) -> bool {
    let mut written = HashSet::new();
    let activations = access.iter().flat_map(|a| a.writes.iter().map(move |t| (t, a)));
    activations
        .filter(|(t, _)| recording.activation(**t).is_some())
        .all(|(t, a)| written.insert(*t) && !a.reads.contains(t))
}

struct Fuser<'a> {
    recording: &'a Recording,
    access: Vec<Access>,
    shared: usize,
    parts: Vec<Part>,
    /// Position of the last part of operations on whole rows.
    open: Option<usize>,
}

impl Fuser<'_> {
    fn add(&mut self, i: usize) {
        let op = &self.recording.ops[i].op;
        let rows = row_program::rows_of(self.recording, op);
        if rows.is_some_and(|(_, width)| row_program::fits(&[op], width, self.shared)) {
            return self.add_row_operation(i);
        }
        let part = match op {
            Op::KvStore(_) => self.heads(i),
            Op::Glu(o) => match quantized_rows(self.recording, o.out) {
                Some(parts) if o.gate.width.is_multiple_of(4) && (o.out.width / parts).is_multiple_of(32) => {
                    Part::Gated(i, parts)
                }
                _ => Part::One(i),
            },
            Op::Attention(o)
                if quantized_rows(self.recording, o.out) == Some(1) && o.out.width.is_multiple_of(256) =>
            {
                Part::Attention(i)
            }
            _ => Part::One(i),
        };
        self.parts.push(part);
    }

    /// Whether two operations may change places.
    fn apart(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.access[a], &self.access[b]);
        let meet = |w: &Access, other: &Access| {
            w.writes.iter().any(|t| other.reads.contains(t) || other.writes.contains(t))
        };
        !meet(a, b) && !meet(b, a)
    }

    /// Whether operations may change places with all parts from `first` on.
    fn passes(&self, ops: &[usize], first: usize) -> bool {
        let between = self.parts[first..].iter().flat_map(Part::ops);
        between.into_iter().all(|other| ops.iter().all(|&op| self.apart(op, other)))
    }

    fn add_row_operation(&mut self, i: usize) {
        let open = self.open.and_then(|at| match &self.parts[at] {
            Part::Rows(ops) if self.joins(ops, i) => Some((at, ops.clone())),
            _ => None,
        });
        if let Some((at, mut ops)) = open {
            if self.passes(&[i], at + 1) {
                ops.push(i);
                self.parts[at] = Part::Rows(ops);
                return;
            }
            if self.passes(&ops, at + 1) {
                self.parts.remove(at);
                ops.push(i);
                self.parts.push(Part::Rows(ops));
                self.open = Some(self.parts.len() - 1);
                return;
            }
        }
        self.parts.push(Part::Rows(vec![i]));
        self.open = Some(self.parts.len() - 1);
    }

    /// Whether an operation on whole rows fits to others, which come before it.
    fn joins(&self, ops: &[usize], i: usize) -> bool {
        let op = |i: usize| &self.recording.ops[i].op;
        let rows = row_program::rows_of(self.recording, op(i));
        let written: Vec<View> = ops.iter().filter_map(|&o| row_program::output(op(o))).collect();
        let same = |view: &View| written.iter().all(|w| w == view || w.tensor != view.tensor);
        let all: Vec<&Op> = ops.iter().copied().chain([i]).map(op).collect();
        let once =
            row_program::output(op(i)).is_some_and(|out| written.iter().all(|w| w.tensor != out.tensor));
        let of_experts = match op(i) {
            Op::ExpertSum(o) => {
                written.iter().all(|w| w.tensor != o.x.tensor && w.tensor != o.weights.tensor)
            }
            _ => true,
        };
        rows == row_program::rows_of(self.recording, op(ops[0]))
            && row_program::inputs(op(i)).iter().all(same)
            && (once && of_experts)
            && rows.is_some_and(|(_, width)| row_program::fits(&all, width, self.shared))
    }

    /// A store with what comes before it, which is taken out of its places.
    fn heads(&mut self, store: usize) -> Part {
        let Op::KvStore(o) = &self.recording.ops[store].op else { return Part::One(store) };
        let cache = self.recording.cache(o.cache);
        if cache.head_dim > heads::WIDEST {
            return Part::One(store);
        }
        // What is stored of a tensor must be all that the launch writes of it and reads of it.
        let stored = |view: View| o.k.iter().chain([&o.v]).filter(|s| s.tensor == view.tensor).count();
        let out = |op: &Op| on_heads(op).map(|(_, out, _)| out);
        let writes = |view: View| move |op: &Op| out(op) == Some(view) && stored(view) == 1;
        let k = o.k.and_then(|k| self.take(store, cache.head_dim, writes(k)));
        let v = self.take(store, cache.head_dim, writes(o.v));
        let turns = |op: &Op| {
            matches!(op, Op::NormRope(_) | Op::Rope(_)) && out(op).is_some_and(|out| stored(out) == 0)
        };
        let q = self.take(store, cache.head_dim, turns);
        if k.is_none() && v.is_none() && q.is_none() {
            return Part::One(store);
        }
        Part::Heads { before: [q, k, v], store }
    }

    /// Takes an operation on heads of all rows out of the last parts, whose result only `store` or later ones read.
    fn take(&mut self, store: usize, head_dim: usize, wanted: impl Fn(&Op) -> bool) -> Option<usize> {
        let first = self.parts.len().saturating_sub(6);
        for at in (first..self.parts.len()).rev() {
            let i = match &self.parts[at] {
                Part::One(i) => *i,
                Part::Rows(ops) if ops.len() == 1 => ops[0],
                _ => continue,
            };
            let op = &self.recording.ops[i].op;
            let Some((x, out, group)) = on_heads(op).filter(|_| wanted(op)) else { continue };
            let of_step = self.recording.activation(x.tensor).is_some_and(|(kind, _)| kind == RowKind::Step);
            let others = self.recording.ops.iter().enumerate().filter(|(o, _)| *o > i && *o <= store);
            let read = |o: usize| self.access[o].reads.contains(&out.tensor);
            let is_stored = read(store);
            let read_by_others = others.clone().any(|(o, _)| o != store && read(o));
            let kept = is_stored && self.recording.ops.iter().enumerate().any(|(o, _)| o > store && read(o));
            let kept = kept || (is_stored && self.recording.is_kept(out.tensor));
            if group != head_dim || !of_step || read_by_others || kept || !self.passes(&[i], at + 1) {
                continue;
            }
            self.parts.remove(at);
            if self.open.is_some_and(|open| open >= at) {
                self.open = None;
            }
            return Some(i);
        }
        None
    }
}

/// How many quantized rows all readers of an activation make of a row of it; `None`: one reads it as it is.
fn quantized_rows(recording: &Recording, view: View) -> Option<usize> {
    if recording.is_kept(view.tensor) {
        return None;
    }
    let mut found = None;
    for NamedOp { op, .. } in recording.ops.iter().filter(|op| op.op.access().reads.contains(&view.tensor)) {
        let parts = quantized_by(recording, op, view)?;
        if found.is_some_and(|f| f != parts) {
            return None;
        }
        found = Some(parts);
    }
    found
}

/// How many quantized rows an operation makes of a row of `view`, if it is a product that does.
fn quantized_by(recording: &Recording, op: &Op, view: View) -> Option<usize> {
    let (x, weight, parts) = match op {
        Op::MatMul(o) => (o.x, o.weight, 1),
        Op::ExpertMatMul(o) if o.input == ExpertInput::Shared => (o.x, o.weight, 1),
        Op::ExpertMatMul(o) => (o.x, o.weight, o.experts.width),
        _ => return None,
    };
    (x == view && mat_mul::quantizes(recording.weight(weight).ty)).then_some(parts)
}

/// What becomes of the rows that each of some operations writes.
pub(crate) fn wanted(recording: &Recording, ops: &[usize]) -> Vec<Wanted> {
    let of_view = |view: View| {
        let mut wanted = Wanted { stored: recording.is_kept(view.tensor), quantized: false };
        for (i, NamedOp { op, .. }) in recording.ops.iter().enumerate() {
            if ops.contains(&i) || !op.access().reads.contains(&view.tensor) {
                continue;
            }
            match quantized_by(recording, op, view) {
                Some(1) => wanted.quantized = true,
                _ => wanted.stored = true,
            }
        }
        wanted
    };
    ops.iter()
        .map(|&i| row_program::output(&recording.ops[i].op).map_or(Wanted::default(), of_view))
        .collect()
}

/// The plan's waves, those that a part has operations of made one: what lives in memory meanwhile suits both orders.
pub(crate) fn waves(plan: &Plan, parts: &[Part]) -> Vec<Range<usize>> {
    let mut joined = vec![false; plan.waves.len()];
    let wave_of = |i: usize| plan.waves.partition_point(|wave| wave.end <= i);
    let access: Vec<Access> = plan.recording.ops.iter().map(|op| op.op.access()).collect();
    let of_parts = parts.iter().map(|part| part.ops().into_iter().map(wave_of));
    let of_parts = of_parts.filter_map(|waves| waves.clone().min().zip(waves.max()));
    let beside = order::beside(plan, &access, parts);
    let beside = beside.into_iter().map(|ops| (wave_of(ops.start), wave_of(ops.end - 1)));
    for (first, last) in of_parts.chain(beside) {
        joined[first..last].fill(true);
    }
    let mut waves: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (wave, joins) in plan.waves.iter().zip(joined) {
        match waves.last_mut() {
            Some(last) if open => last.end = wave.end,
            _ => waves.push(wave.clone()),
        }
        open = joins;
    }
    waves
}

/// Calls that do not wait for each other, and which they are.
type Level = ((usize, usize), Vec<Box<dyn Call>>);

/// Prepares the parts of a plan, whose operations have been prepared one by one before.
pub(crate) fn lower(
    c: &mut Compiler<'_>,
    plan: &Plan,
    parts: &[Part],
) -> Result<Vec<Box<dyn Call>>, BackendError> {
    let wave_of = |i: usize| plan.waves.partition_point(|wave| wave.end <= i);
    let ops = &plan.recording.ops;
    let access: Vec<Access> = ops.iter().map(|op| op.op.access()).collect();
    let places = order::places(&access, parts);
    let mut levels: Vec<Level> = Vec::new();
    // Operations of this wave have been prepared one by one: their products may be launched together.
    let (mut wave, mut waiting) = (None, Vec::new());
    c.quantized.restart(written_once(&plan.recording, &access));
    let reads = |i: usize| ops[i].op.access().reads;
    let read = parts
        .iter()
        .enumerate()
        .flat_map(|(at, part)| part.ops().into_iter().flat_map(reads).map(move |tensor| (tensor, at)));
    c.quantized.read_by(read);
    for (at, part) in parts.iter().enumerate() {
        c.quantized.begin(at);
        let own = match part {
            Part::One(i) => Some(wave_of(*i)),
            _ => None,
        };
        if own.is_none() || own != wave {
            c.forget(std::mem::take(&mut waiting).into_iter());
            wave = own;
        }
        if own.is_none() {
            c.forget(part.ops().into_iter().map(|i| &ops[i]));
        }
        let regions = regions(c, plan, &parts[at + 1..]);
        let mut more = lower_part(c, plan, (part, &regions))?;
        if levels.last().is_none_or(|(place, _)| *place != places[at]) {
            levels.push((places[at], Vec::new()));
        }
        let (_, calls) = levels.last_mut().expect("one has just been added");
        calls.extend(c.take_before());
        calls.append(&mut more);
        if let Part::One(i) = part {
            waiting.push(&ops[*i]);
        }
    }
    // By now each product knows those that are launched with it anyway.
    let mut calls = Vec::new();
    for (_, level) in levels {
        calls.append(&mut mat_mul_one::grouped(c, level)?);
    }
    Ok(calls)
}

/// Weights of the products behind a part, up to the next that is not ready for them.
fn regions(c: &Compiler<'_>, plan: &Plan, behind: &[Part]) -> Vec<Region> {
    let products = behind.iter().take_while(|part| !matches!(part, Part::Rows(_) | Part::Attention(_)));
    let weights = products.flat_map(Part::ops).filter_map(|i| match &plan.recording.ops[i].op {
        Op::MatMul(o) => mat_mul::region(c, o.weight),
        _ => None,
    });
    weights.collect()
}

/// The weight that is multiplied next with the experts of the first of some operations.
fn next_of_experts(ops: &[NamedOp]) -> Option<TensorId> {
    let experts = |op: &NamedOp| match &op.op {
        Op::ExpertMatMul(o) => Some((o.experts, o.weight)),
        _ => None,
    };
    let (chosen, _) = experts(ops.first()?)?;
    ops[1..].iter().filter_map(experts).find(|(e, _)| *e == chosen).map(|(_, weight)| weight)
}

fn lower_part(
    c: &mut Compiler<'_>,
    plan: &Plan,
    (part, regions): (&Part, &[Region]),
) -> Result<Vec<Box<dyn Call>>, BackendError> {
    let ops = &plan.recording.ops;
    let op = |i: usize| &ops[i].op;
    let call = match part {
        Part::One(i) => {
            c.quantized.next = next_of_experts(&ops[*i..]);
            lower_one(c, &ops[*i])?
        }
        Part::Rows(run) => {
            let run_ops: Vec<&NamedOp> = run.iter().map(|&i| &ops[i]).collect();
            row_program::row_program(c, &run_ops, &wanted(&plan.recording, run), regions)?
        }
        Part::Heads { before, store } => {
            let Op::KvStore(o) = op(*store) else { return lower_one(c, &ops[*store]).map(|call| vec![call]) };
            heads::heads(c, before.map(|i| i.map(|i| &ops[i])), o)?
        }
        Part::Gated(i, rows) => {
            let Op::Glu(o) = op(*i) else { return lower_one(c, &ops[*i]).map(|call| vec![call]) };
            mat_mul_quantize::gated(c, o, *rows)?
        }
        Part::Attention(i) => {
            let Op::Attention(o) = op(*i) else { return lower_one(c, &ops[*i]).map(|call| vec![call]) };
            return attention::quantized(c, (&ops[*i], o), regions);
        }
    };
    Ok(vec![call])
}

#[cfg(test)]
mod tests {
    use hf2q_model::{RecordOptions, toy};
    use hf2q_plan::{KvFormat, Passes};

    use super::*;

    const SHARED: usize = 99 << 10;

    #[test]
    fn every_operation_is_in_one_part_and_none_passes_what_it_touches() {
        for (name, model) in toy::all(2) {
            let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
            let plan = Plan::compile(recording, Passes::ALL);
            let order: Vec<usize> = parts(&plan, SHARED).iter().flat_map(Part::ops).collect();
            let mut all = order.clone();
            all.sort_unstable();
            assert_eq!(all, (0..plan.recording.ops.len()).collect::<Vec<_>>(), "{name}");
            let access: Vec<Access> = plan.recording.ops.iter().map(|op| op.op.access()).collect();
            for (at, &later) in order.iter().enumerate() {
                for &earlier in order[at + 1..].iter().filter(|&&o| o < later) {
                    let meet = |a: &Access, b: &Access| {
                        a.writes.iter().any(|t| b.reads.contains(t) || b.writes.contains(t))
                    };
                    let (a, b) = (&access[later], &access[earlier]);
                    assert!(!meet(a, b) && !meet(b, a), "{name}: operations {earlier} and {later}");
                }
            }
        }
    }

    #[test]
    fn activations_with_two_values_are_left_alone() {
        let (_, model) = toy::all(2).into_iter().next().unwrap();
        let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
        let mut plan = Plan::compile(recording, Passes::ALL);
        let again = plan.recording.ops.iter().find(|op| matches!(op.op, Op::RmsNorm(_))).unwrap().clone();
        plan.recording.ops.push(again);
        let parts = parts(&plan, SHARED);
        assert!(parts.iter().all(|part| matches!(part, Part::One(_))));
        assert_eq!(parts.len(), plan.recording.ops.len());
    }

    #[test]
    fn waves_cover_all_operations_in_order() {
        for (name, model) in toy::all(2) {
            let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
            let plan = Plan::compile(recording, Passes::ALL);
            let parts = parts(&plan, SHARED);
            assert!(parts.len() < plan.recording.ops.len(), "{name}");
            let waves = waves(&plan, &parts);
            assert_eq!((waves[0].start, waves.last().unwrap().end), (0, plan.recording.ops.len()), "{name}");
            assert!(waves.windows(2).all(|w| w[0].end == w[1].start), "{name}");
            for part in &parts {
                let ops = part.ops();
                assert!(waves.iter().any(|w| ops.iter().all(|o| w.contains(o))), "{name}: {part:?}");
            }
        }
    }
}
