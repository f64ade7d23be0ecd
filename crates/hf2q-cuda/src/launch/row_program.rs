//! Operations on whole rows in one launch: what lies between products.

use hf2q_plan::{BackendError, NamedOp, Op, RowKind, TensorId, View};

use super::{Arguments, Call, Cx, Grid, Region, Rows, kind_code, launch_ahead, mat_mul_quantize, norm};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Most columns of a row.
pub(crate) const WIDEST: usize = 8 * 1024;

/// Most operations of the kernel.
pub(crate) const MOST: usize = 40;

fn variant() -> Variant {
    Variant::plain("row_program")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// Most weights that are brought near meanwhile.
const AHEAD: usize = 4;

/// Up to so many rows leave a device idle, which then brings weights near.
const IDLE: usize = 16;

/// Codes of the kernel's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Code {
    Load,
    Store,
    Norm,
    Add,
    Scale,
    ExpertSum,
    Quantize,
    /// Rows and weights that were asked for are there.
    Wait,
}

/// `struct Micro` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Micro {
    code: Code,
    to: u32,
    a: u32,
    b: u32,
    rows: Rows,
    by: u64,
    weights: Rows,
    value: f32,
    padding: u32,
}

const NO_ROWS: Rows = Rows { data: 0, stride: 0, width: 0 };

/// `struct RowProgram` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    micros: [Micro; MOST],
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
    args: Box<Args>,
    rows: RowKind,
    shared: usize,
    multiprocessors: usize,
}

impl Call for RowProgram {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let threads = [norm::threads(self.args.width as usize), 1, 1];
        let count = cx.count(self.rows);
        let more = if count <= IDLE { self.multiprocessors.saturating_sub(count) } else { 0 };
        let grid = Grid { blocks: [count + more, 1, 1], threads, shared: self.shared };
        let args = Args { blocks: u32::try_from(count).expect("rows are bounded by the limits of a program"), ..*self.args };
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
        Op::ExpertSum(o) if recording.activation(o.x.tensor).is_some_and(|(_, n)| n % 4 == 0) && o.x.offset % 4 == 0 => vec![o.out],
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

    fn push(&mut self, code: Code, (to, a, b): (u32, u32, u32)) -> &mut Micro {
        let (rows, by, weights) = (NO_ROWS, 0, NO_ROWS);
        self.micros.push(Micro { code, to, a, b, rows, by, weights, value: 0.0, padding: 0 });
        self.micros.last_mut().expect("one has just been added")
    }

    fn norm(
        &mut self,
        c: &mut Compiler<'_>,
        (to, x): (u32, View),
        (weight, eps): (Option<TensorId>, f32),
    ) -> Result<(), BackendError> {
        let by = weight.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data);
        let from = self.find(x);
        let same = self.norm.is_some_and(|(row, of)| row == x && of.to_bits() == eps.to_bits());
        self.norm = Some((x, eps));
        let micro = self.push(Code::Norm, (to, from, same.into()));
        (micro.by, micro.value) = (by, eps);
        Ok(())
    }

    fn operation(&mut self, c: &mut Compiler<'_>, op: &Op) -> Result<(), BackendError> {
        let out = output(op).expect("operations of a run write rows");
        let to = self.take(Some(out));
        match op {
            Op::RmsNorm(o) => self.norm(c, (to, o.x), (o.weight, o.eps))?,
            Op::NormAdd(o) => {
                self.norm(c, (to, o.x), (o.weight, o.eps))?;
                self.push(Code::Add, (to, self.find(o.residual), to));
            }
            Op::Add(o) => {
                self.push(Code::Add, (to, self.find(o.a), self.find(o.b)));
            }
            Op::Scale(o) => {
                let by = o.by.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data);
                let micro = self.push(Code::Scale, (to, self.find(o.x), 0));
                (micro.by, micro.value) = (by, o.factor);
            }
            Op::ExpertSum(o) => {
                let (rows, weights) = (c.operand(o.x)?.rows, c.operand(o.weights)?.rows);
                let micro = self.push(Code::ExpertSum, (to, 0, 0));
                (micro.rows, micro.weights) = (rows, weights);
            }
            _ => unreachable!("`rows_of` accepts no other"),
        }
        Ok(())
    }

    fn keep(&mut self, c: &mut Compiler<'_>, view: View, wanted: Wanted) -> Result<(), BackendError> {
        let from = self.find(view);
        if wanted.stored {
            let rows = c.operand(view)?.rows;
            self.push(Code::Store, (0, from, 0)).rows = rows;
        }
        if wanted.quantized {
            let coded = mat_mul_quantize::place(c, view, 1)?.coded;
            let micro = self.push(Code::Quantize, (0, from, 0));
            (micro.by, micro.weights.data) = (coded.codes, coded.groups);
        }
        Ok(())
    }
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
    let mut writer = Writer { micros: Vec::new(), rows: Vec::new(), norm: None };
    let written: Vec<View> = ops.iter().filter_map(|op| output(&op.op)).collect();
    for view in ops.iter().flat_map(|op| inputs(&op.op)) {
        if !written.contains(&view) && !writer.rows.contains(&Some(view)) {
            let (to, from) = (writer.take(Some(view)), c.operand(view)?.rows);
            writer.push(Code::Load, (to, 0, 0)).rows = from;
        }
    }
    writer.push(Code::Wait, (0, 0, 0));
    for (i, op) in ops.iter().enumerate() {
        writer.operation(c, &op.op)?;
        let out = written[i];
        writer.keep(c, out, wanted[i])?;
        let later = &ops[i + 1..];
        for row in &mut writer.rows {
            let read = |view: &View| later.iter().any(|op| inputs(&op.op).contains(view));
            *row = row.filter(read);
        }
    }
    let mut args = Args {
        micros: [Micro { code: Code::Load, to: 0, a: 0, b: 0, rows: NO_ROWS, by: 0, weights: NO_ROWS, value: 0.0, padding: 0 }; MOST],
        count: small(writer.micros.len())?,
        kind: kind_code(rows),
        width: small(width)?,
        rows: small(writer.rows.len())?,
        blocks: 0,
        padding: 0,
        ahead: std::array::from_fn(|i| regions.get(i).copied().unwrap_or_default()),
    };
    args.micros[..writer.micros.len()].copy_from_slice(&writer.micros);
    let weights = writer.micros.iter().filter(|m| m.code == Code::Norm && m.by != 0).count();
    let shared = (writer.rows.len() + weights) * width * size_of::<f32>();
    let function = c.function_with(&variant(), "row_program", shared)?;
    let multiprocessors = c.device.info.multiprocessors as usize;
    Ok(Box::new(RowProgram { function, args: Box::new(args), rows, shared, multiprocessors }))
}

/// Whether some operations fit one launch with so many bytes of shared memory: each may load and keep rows beside its own work.
pub(crate) fn fits(ops: &[&Op], width: usize, shared: usize) -> bool {
    let micros: usize = 1 + ops.iter().map(|op| 4 + inputs(op).len()).sum::<usize>();
    let weights = ops.iter().filter(|op| match op {
        Op::RmsNorm(o) => o.weight.is_some(),
        Op::NormAdd(o) => o.weight.is_some(),
        _ => false,
    });
    micros <= MOST && (most_rows(ops) + weights.count()) * width * size_of::<f32>() <= shared
}

/// Most rows that are held at a time.
fn most_rows(ops: &[&Op]) -> usize {
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
