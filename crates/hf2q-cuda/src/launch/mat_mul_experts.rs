//! Which entries (choices of rows) are multiplied together with one expert's matrix.

use hf2q_plan::{BackendError, ExpertInput, ExpertMatMul, RowKind};

use super::mat_mul::MANY;
use super::mat_mul_one::AtOneRow;
use super::{Arguments, Call, Cx, Grid, Rows, kind_code, launch};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

pub(super) fn variant() -> Variant {
    Variant::plain("mat_mul_lists")
}

/// How entries form spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Each is one; there is no list.
    Single,
    /// Up to so many of one expert.
    Spans(usize),
}

impl Grouping {
    /// Most entries of a span.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Spans(width) => width,
        }
    }
}

/// Up to so many entries seldom share an expert.
const SINGLE: usize = 16;

/// Entries of spans with float weights.
const FLOAT: usize = 8;

/// The choices of a router, as products read them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// i32 `[rows, top_k]`.
    pub(super) experts: Rows,
    pub(super) input: ExpertInput,
    /// Address of the list of `mat_mul_lists.cu`.
    pub(super) list: u64,
    count: usize,
    float: bool,
}

impl Choice {
    /// The choices of an operation; they are listed before the wave unless that has been done. They are of the experts that
    /// there are, as the plan's check requires: kernels do not look.
    pub(super) fn prepare(c: &mut Compiler<'_>, o: &ExpertMatMul, float: bool) -> Result<Self, BackendError> {
        let operand = c.operand(o.experts)?;
        let count = c.recording.weight(o.weight).experts;
        let mut choice = Self { experts: operand.rows, input: o.input, list: 0, count, float };
        let key = (o.experts, float);
        if let Some(at) = c.quantized.lists.find(&key) {
            choice.list = at;
            return Ok(choice);
        }
        let entries = c.max_rows(operand.kind) * choice.top_k();
        // Spans are fewer the wider they are.
        let words = 2 + 3 * (count + entries) + entries;
        let bytes = words * size_of::<u32>();
        choice.list = match c.quantized.lists.reuse(key, bytes, |_| false) {
            Some(at) => at,
            None => {
                let at = c.allocate("lists of entries of experts", bytes)?;
                c.quantized.lists.add(key, at, bytes);
                at
            }
        };
        let args = Args {
            chosen: operand.rows,
            list: choice.list,
            kind: kind_code(operand.kind),
            experts: small(count)?,
            most: 0,
            width: 0,
        };
        let function = c.function_with(&variant(), "list_entries", 2 * count * size_of::<u32>())?;
        c.before(Box::new(List { function, args, choice, kind: operand.kind }));
        Ok(choice)
    }

    /// Whether entries of so many rows are multiplied one by one.
    pub(super) fn is_single(&self, rows: usize) -> bool {
        self.grouping(rows) == Grouping::Single
    }

    fn top_k(&self) -> usize {
        self.experts.width as usize
    }

    /// Quantized rows of a row of the input.
    pub(super) fn parts(&self) -> usize {
        match self.input {
            ExpertInput::Shared => 1,
            ExpertInput::PerExpert => self.top_k(),
        }
    }

    /// How the entries of so many rows are grouped: by how many an expert has of them.
    pub(super) fn grouping(&self, rows: usize) -> Grouping {
        let entries = rows * self.top_k();
        if entries <= SINGLE {
            return Grouping::Single;
        }
        if self.float {
            return Grouping::Spans(FLOAT);
        }
        match entries.div_ceil(self.count) {
            0..=6 => Grouping::Spans(8),
            7..=12 => Grouping::Spans(16),
            _ => Grouping::Spans(MANY),
        }
    }

    /// Most spans of so many rows.
    pub(super) fn spans(&self, rows: usize, grouping: Grouping) -> usize {
        let entries = rows * self.top_k();
        entries.min(self.count + entries / grouping.width())
    }
}

/// `Lists` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    chosen: Rows,
    list: u64,
    kind: u32,
    experts: u32,
    most: u32,
    width: u32,
}

// SAFETY: the fields are those of the kernel's structure; the choices lie in the arena, and the list has been allocated
// for as many entries as the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct List {
    function: Function,
    args: Args,
    choice: Choice,
    kind: RowKind,
}

impl Call for List {
    fn preparation(&self) -> &'static str {
        "list"
    }

    fn at_one_row(&self) -> AtOneRow {
        if self.choice.is_single(1) { AtOneRow::Nothing } else { AtOneRow::Own }
    }

    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let rows = cx.count(self.kind);
        let grouping = self.choice.grouping(rows);
        if grouping == Grouping::Single {
            return Ok(());
        }
        let word = |n: usize| u32::try_from(n).expect("a list is allocated with 32-bit positions");
        let most = word(self.choice.spans(rows, grouping));
        let args = Args { most, width: word(grouping.width()), ..self.args };
        let shared = 2 * self.choice.count * size_of::<u32>();
        launch(cx, self.function, Grid { blocks: [1, 1, 1], threads: [1024, 1, 1], shared }, &args)
    }
}
