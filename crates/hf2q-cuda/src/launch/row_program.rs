//! Operations on whole rows in one launch: what lies between products.

use hf2q_plan::{BackendError, NamedOp, Op, RowKind, TensorId, View};

use super::{
    Arguments, Call, Cx, Grid, Region, Rows, kind_code, launch_ahead, mat_mul_quantize, norm, row_straight,
};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Most columns of a row.
pub(crate) const WIDEST: usize = 8 * 1024;

/// Most operations of the kernel.
pub(crate) const MOST: usize = 28;

fn variant() -> Variant {
    Variant::plain("row_program")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// Most weights that are brought near meanwhile.
pub(super) const AHEAD: usize = 4;

/// Up to so many rows leave a device idle, which then brings weights near.
const IDLE: usize = 16;

/// Blocks beside those of `count` rows, which bring weights near.
pub(super) fn helpers(count: usize, multiprocessors: usize) -> usize {
    if count <= IDLE { multiprocessors.saturating_sub(count) } else { 0 }
}

/// Where the values of one of the kernel's operations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    Load,
    /// Rows and weights that were asked for are there.
    Wait,
    Copy,
    Norm,
    ExpertSum,
}

/// What is done with them.
pub(super) mod flag {
    pub(in crate::launch) const ADD: u32 = 1;
    pub(in crate::launch) const SCALE: u32 = 2;
    pub(in crate::launch) const STORE: u32 = 4;
    pub(in crate::launch) const QUANTIZE: u32 = 8;
    pub(in crate::launch) const SAME_FACTOR: u32 = 16;
}

/// `struct Micro` of the kernel.
#[derive(Clone, Copy)]
pub(super) struct Micro {
    pub(super) code: Code,
    pub(super) flags: u32,
    pub(super) to: u32,
    pub(super) a: u32,
    pub(super) add: u32,
    pub(super) eps: f32,
    pub(super) rows: Rows,
    pub(super) weights: Rows,
    pub(super) by: u64,
    pub(super) scale_by: u64,
    pub(super) scale: f32,
    pub(super) out: Rows,
    pub(super) codes: u64,
    pub(super) groups: u64,
}

impl Micro {
    /// The structure as it lies in memory.
    fn bytes(&self) -> Vec<u8> {
        let rows = |r: &Rows| {
            [r.data.to_le_bytes(), (u64::from(r.width) << 32 | u64::from(r.stride)).to_le_bytes()].concat()
        };
        let mut bytes = Vec::new();
        for word in [self.code as u32, self.flags, self.to, self.a, self.add, self.eps.to_bits()] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([rows(&self.rows), rows(&self.weights)].concat());
        bytes.extend([self.by.to_le_bytes(), self.scale_by.to_le_bytes()].concat());
        bytes.extend([self.scale.to_bits().to_le_bytes(), 0_u32.to_le_bytes()].concat());
        bytes.extend(rows(&self.out));
        bytes.extend([self.codes.to_le_bytes(), self.groups.to_le_bytes()].concat());
        bytes
    }

    fn new(code: Code, to: u32, a: u32) -> Self {
        Self {
            code,
            flags: 0,
            to,
            a,
            add: 0,
            eps: 0.0,
            rows: NO_ROWS,
            weights: NO_ROWS,
            by: 0,
            scale_by: 0,
            scale: 1.0,
            out: NO_ROWS,
            codes: 0,
            groups: 0,
        }
    }
}

const NO_ROWS: Rows = Rows { data: 0, stride: 0, width: 0 };

/// `struct RowProgram` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    micros: u64,
    count: u32,
    kind: u32,
    width: u32,
    rows: u32,
    blocks: u32,
    padding: u32,
    ahead: [Region; AHEAD],
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, codes have been allocated for as many rows
// as the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct RowProgram {
    function: Function,
    args: Args,
    rows: RowKind,
    shared: usize,
    multiprocessors: usize,
}

impl Call for RowProgram {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let threads = [norm::threads(self.args.width as usize), 1, 1];
        let count = cx.count(self.rows);
        let blocks = count + helpers(count, self.multiprocessors);
        let grid = Grid { blocks: [blocks, 1, 1], threads, shared: self.shared };
        let args = Args {
            blocks: u32::try_from(count).expect("rows are bounded by the limits of a program"),
            ..self.args
        };
        launch_ahead(cx, self.function, grid, &args)
    }
}

/// Rows of the result of an operation on whole rows: which, and how wide; `None`: it is none, or none that is launched with others.
pub(crate) fn rows_of(recording: &hf2q_plan::Recording, op: &Op) -> Option<(RowKind, usize)> {
    let views = match op {
        Op::RmsNorm(o) if o.group == o.x.width => vec![o.out, o.x],
        Op::NormAdd(o) => vec![o.out, o.x, o.residual],
        Op::Add(o) => vec![o.out, o.a, o.b],
        Op::Scale(o) => vec![o.out, o.x],
        Op::ExpertSum(o)
            if recording.activation(o.x.tensor).is_some_and(|(_, n)| n % 4 == 0) && o.x.offset % 4 == 0 =>
        {
            vec![o.out]
        }
        _ => return None,
    };
    let kind = |view: &View| recording.activation(view.tensor).map(|(kind, _)| kind);
    let (own, width) = (kind(&views[0])?, views[0].width);
    let whole = |view: &View| {
        let stride = recording.activation(view.tensor).map_or(1, |(_, stride)| stride);
        view.offset.is_multiple_of(4) && stride.is_multiple_of(4)
    };
    let alike = views.iter().all(|view| view.width == width && kind(view) == Some(own) && whole(view));
    (alike && width <= WIDEST && width.is_multiple_of(4)).then_some((own, width))
}

/// Rows that an operation on whole rows reads, but for those of experts.
pub(crate) fn inputs(op: &Op) -> Vec<View> {
    match op {
        Op::RmsNorm(o) => vec![o.x],
        Op::NormAdd(o) => vec![o.x, o.residual],
        Op::Add(o) => vec![o.a, o.b],
        Op::Scale(o) => vec![o.x],
        _ => Vec::new(),
    }
}

/// The rows that it writes.
pub(crate) fn output(op: &Op) -> Option<View> {
    match op {
        Op::RmsNorm(o) => Some(o.out),
        Op::NormAdd(o) => Some(o.out),
        Op::Add(o) => Some(o.out),
        Op::Scale(o) => Some(o.out),
        Op::ExpertSum(o) => Some(o.out),
        _ => None,
    }
}

/// What becomes of a row that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Others read it.
    pub(crate) stored: bool,
    /// Products read it quantized.
    pub(crate) quantized: bool,
}

/// Where what a program names lies.
pub(super) trait Places {
    fn weight(&mut self, id: TensorId) -> Result<u64, BackendError>;
    fn rows(&mut self, view: View) -> Result<Rows, BackendError>;
    /// Codes and their groups.
    fn coded(&mut self, view: View) -> Result<(u64, u64), BackendError>;
}

impl Places for Compiler<'_> {
    fn weight(&mut self, id: TensorId) -> Result<u64, BackendError> {
        Ok(Compiler::weight(self, id)?.data)
    }

    fn rows(&mut self, view: View) -> Result<Rows, BackendError> {
        Ok(self.operand(view)?.rows)
    }

    fn coded(&mut self, view: View) -> Result<(u64, u64), BackendError> {
        let coded = mat_mul_quantize::place(self, view, 1)?.coded;
        Ok((coded.codes, coded.groups))
    }
}

/// A program that is being written.
struct Writer {
    micros: Vec<Micro>,
    /// What the kernel's rows hold.
    rows: Vec<Option<View>>,
    /// The row that was normalized last, and what was added to its mean.
    norm: Option<(View, f32)>,
}

impl Writer {
    fn find(&self, view: View) -> u32 {
        let at = self.rows.iter().position(|&row| row == Some(view));
        u32::try_from(at.expect("inputs are loaded or written before")).expect("few rows")
    }

    fn take(&mut self, view: Option<View>) -> u32 {
        let free = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        if free == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[free] = view;
        u32::try_from(free).expect("few rows")
    }

    fn push(&mut self, micro: Micro) -> &mut Micro {
        self.micros.push(micro);
        self.micros.last_mut().expect("one has just been added")
    }

    /// The operation that has just written `view`, if only the next one does something with that. It then writes `to`.
    fn unfinished(&mut self, (view, to): (View, u32), is_last_use: bool) -> Option<&mut Micro> {
        let from = self.find(view);
        let last = self.micros.last_mut().filter(|m| is_last_use && m.to == from)?;
        let open = !matches!(last.code, Code::Load | Code::Wait);
        if !open || last.flags & (flag::STORE | flag::QUANTIZE | flag::SCALE) != 0 {
            return None;
        }
        last.to = to;
        Some(last)
    }

    fn norm(
        &mut self,
        c: &mut dyn Places,
        (to, x): (u32, View),
        (weight, eps): (Option<TensorId>, f32),
    ) -> Result<&mut Micro, BackendError> {
        let by = weight.map(|id| c.weight(id)).transpose()?.unwrap_or(0);
        let from = self.find(x);
        let same = self.norm.is_some_and(|(row, of)| row == x && of.to_bits() == eps.to_bits());
        self.norm = Some((x, eps));
        let micro = self.push(Micro::new(Code::Norm, to, from));
        (micro.by, micro.eps) = (by, eps);
        micro.flags = if same { flag::SAME_FACTOR } else { 0 };
        Ok(micro)
    }

    /// `later`: operations behind this one.
    fn operation(&mut self, c: &mut dyn Places, op: &Op, later: &[&NamedOp]) -> Result<(), BackendError> {
        let out = output(op).expect("operations of a run write rows");
        let to = self.take(Some(out));
        let last_use = |view: View| !later.iter().any(|op| inputs(&op.op).contains(&view));
        match op {
            Op::RmsNorm(o) => {
                self.norm(c, (to, o.x), (o.weight, o.eps))?;
            }
            Op::NormAdd(o) => {
                let residual = self.find(o.residual);
                let micro = self.norm(c, (to, o.x), (o.weight, o.eps))?;
                (micro.flags, micro.add) = (micro.flags | flag::ADD, residual);
            }
            Op::Add(o) => self.add(to, [o.a, o.b], [last_use(o.a), last_use(o.b)]),
            Op::Scale(o) => {
                let by = o.by.map(|id| c.weight(id)).transpose()?.unwrap_or(0);
                let from = self.find(o.x);
                if self.unfinished((o.x, to), last_use(o.x)).is_none() {
                    self.push(Micro::new(Code::Copy, to, from));
                }
                let micro = self.micros.last_mut().expect("there is one");
                (micro.flags, micro.scale, micro.scale_by) = (micro.flags | flag::SCALE, o.factor, by);
            }
            Op::ExpertSum(o) => {
                let (rows, weights) = (c.rows(o.x)?, c.rows(o.weights)?);
                let micro = self.push(Micro::new(Code::ExpertSum, to, 0));
                (micro.rows, micro.weights) = (rows, weights);
            }
            _ => unreachable!("`rows_of` accepts no other"),
        }
        Ok(())
    }

    fn add(&mut self, to: u32, [a, b]: [View; 2], [a_last, b_last]: [bool; 2]) {
        let [first, second] = [a, b].map(|view| self.find(view));
        let added = |m: &Micro| m.flags & flag::ADD == 0;
        for (view, last, other) in [(b, b_last, first), (a, a_last, second)] {
            if a == b || !self.micros.last().is_some_and(added) {
                continue;
            }
            if let Some(micro) = self.unfinished((view, to), last) {
                (micro.flags, micro.add) = (micro.flags | flag::ADD, other);
                return;
            }
        }
        let micro = self.push(Micro::new(Code::Copy, to, second));
        (micro.flags, micro.add) = (flag::ADD, first);
    }

    fn keep(&mut self, c: &mut dyn Places, view: View, wanted: Wanted) -> Result<(), BackendError> {
        let micro = self.micros.last_mut().expect("it has just been written");
        if wanted.stored {
            micro.out = c.rows(view)?;
            micro.flags |= flag::STORE;
        }
        if wanted.quantized {
            (micro.codes, micro.groups) = c.coded(view)?;
            micro.flags |= flag::QUANTIZE;
        }
        Ok(())
    }
}

/// Operations in the order of a program: sums over experts read nothing that others write, so they come first.
fn ordered<T>(ops: &[T], op: impl Fn(&T) -> &Op) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_by_key(|&i| !matches!(op(&ops[i]), Op::ExpertSum(_)));
    order
}

/// Writes the program of some operations and says how many rows it holds. `wanted` says what becomes of what each of them writes.
pub(super) fn write(
    c: &mut dyn Places,
    ops: &[&NamedOp],
    wanted: &[Wanted],
) -> Result<(Vec<Micro>, usize), BackendError> {
    let order = ordered(ops, |op| &op.op);
    let (ops, wanted): (Vec<&NamedOp>, Vec<Wanted>) = order.iter().map(|&i| (ops[i], wanted[i])).unzip();
    let mut writer = Writer { micros: Vec::new(), rows: Vec::new(), norm: None };
    let written: Vec<View> = ops.iter().filter_map(|op| output(&op.op)).collect();
    for view in ops.iter().flat_map(|op| inputs(&op.op)) {
        if !written.contains(&view) && !writer.rows.contains(&Some(view)) {
            let (to, from) = (writer.take(Some(view)), c.rows(view)?);
            writer.push(Micro::new(Code::Load, to, 0)).rows = from;
        }
    }
    let mut waits = false;
    for (i, op) in ops.iter().enumerate() {
        let later = &ops[i + 1..];
        // Sums over experts read no rows that were asked for.
        if !waits && !matches!(op.op, Op::ExpertSum(_)) {
            writer.push(Micro::new(Code::Wait, 0, 0));
            waits = true;
        }
        writer.operation(c, &op.op, later)?;
        writer.keep(c, written[i], wanted[i])?;
        for row in &mut writer.rows {
            let read = |view: &View| later.iter().any(|op| inputs(&op.op).contains(view));
            *row = row.filter(read);
        }
    }
    Ok((writer.micros, writer.rows.len()))
}

/// Prepares some operations, in order, as one launch. `wanted` says what becomes of what each of them writes,
/// `regions` what is read soon.
pub(crate) fn row_program(
    c: &mut Compiler<'_>,
    ops: &[&NamedOp],
    wanted: &[Wanted],
    regions: &[Region],
) -> Result<Box<dyn Call>, BackendError> {
    let (rows, width) = rows_of(c.recording, &ops[0].op).expect("operations of a run have rows");
    let (micros, held) = write(c, ops, wanted)?;
    if let Some(call) = row_straight::prepare(c, &micros, (rows, width), regions)? {
        return Ok(call);
    }
    let bytes: Vec<u8> = micros.iter().flat_map(Micro::bytes).collect();
    let args = Args {
        micros: c.constant("operations on rows", &bytes)?,
        count: small(micros.len())?,
        kind: kind_code(rows),
        width: small(width)?,
        rows: small(held)?,
        blocks: 0,
        padding: 0,
        ahead: std::array::from_fn(|i| regions.get(i).copied().unwrap_or_default()),
    };
    let weights = micros.iter().filter(|m| m.code == Code::Norm && m.by != 0).count();
    let shared = (held + weights) * width * size_of::<f32>();
    let function = c.function_with(&variant(), "row_program", shared)?;
    let multiprocessors = c.device.info.multiprocessors as usize;
    Ok(Box::new(RowProgram { function, args, rows, shared, multiprocessors }))
}

/// Whether some operations fit one launch with so many bytes of shared memory: each may load and keep rows beside its own work.
pub(crate) fn fits(ops: &[&Op], width: usize, shared: usize) -> bool {
    let micros: usize = 1 + ops.iter().map(|op| 1 + inputs(op).len()).sum::<usize>();
    let weights = ops.iter().filter(|op| match op {
        Op::RmsNorm(o) => o.weight.is_some(),
        Op::NormAdd(o) => o.weight.is_some(),
        _ => false,
    });
    micros <= MOST && (most_rows(ops) + weights.count()) * width * size_of::<f32>() <= shared
}

/// Most rows that are held at a time.
fn most_rows(ops: &[&Op]) -> usize {
    let ops: Vec<&Op> = ordered(ops, |op| op).into_iter().map(|i| ops[i]).collect();
    let written: Vec<View> = ops.iter().filter_map(|op| output(op)).collect();
    let mut held: Vec<View> = Vec::new();
    for view in ops.iter().flat_map(|op| inputs(op)) {
        if !written.contains(&view) && !held.contains(&view) {
            held.push(view);
        }
    }
    let mut most = held.len();
    for (i, &out) in written.iter().enumerate() {
        held.push(out);
        most = most.max(held.len());
        held.retain(|view| ops[i + 1..].iter().any(|op| inputs(op).contains(view)));
    }
    most
}
