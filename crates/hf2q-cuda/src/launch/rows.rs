//! Operations whose rows are computed column by column: embedding, inputs, selection, gated units, sums over experts.

use hf2q_plan::{Activation, BackendError, Embed, ExpertSum, Glu, Input, NamedOp, RowKind, SelectRows};

use super::{Arguments, Call, Cx, Grid, MAX_Y, Operand, Rows, kind_code, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

const THREADS: usize = 256;

/// Types of which single values can be read: numbers of GGUF types, as `raw.cuh` has them.
const TYPES: [u32; 16] = [0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39];

fn embed_variant(ty: u32) -> Variant {
    Variant::plain("embed").with("TABLE", ty)
}

pub(super) fn variants() -> Vec<Variant> {
    let plain = ["input", "select_rows", "glu", "expert_sum"].map(Variant::plain);
    TYPES.into_iter().map(embed_variant).chain(plain).collect()
}

/// One block for each [`THREADS`] columns of a row.
struct ByColumn<A> {
    function: Function,
    args: A,
    columns: usize,
    kind: RowKind,
}

impl<A: Arguments> Call for ByColumn<A> {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let blocks = [self.columns.div_ceil(THREADS), cx.count(self.kind).min(MAX_Y), 1];
        launch_ahead(cx, self.function, Grid::new(blocks, THREADS), &self.args)
    }
}

/// Launches a kernel that computes each column of `out` by itself.
pub(super) fn by_column<A: Arguments>(function: Function, args: A, out: Operand) -> Box<dyn Call> {
    Box::new(ByColumn { function, args, columns: out.rows.width as usize, kind: out.kind })
}

#[derive(Clone, Copy)]
#[repr(C)]
struct EmbedArgs {
    table: u64,
    row_bytes: u64,
    out: Rows,
    scale: f32,
    padding: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct InputArgs {
    out: Rows,
    index: u32,
    padding: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SelectArgs {
    x: Rows,
    out: Rows,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct GluArgs {
    gate: Rows,
    up: Rows,
    out: Rows,
    apart: u32,
    kind: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SumArgs {
    x: Rows,
    weights: Rows,
    out: Rows,
    kind: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; the table has a row for every token of an accepted step.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for EmbedArgs {}
// SAFETY: the fields are those of the kernel's structure; an accepted step has values for all its rows in each input.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for InputArgs {}
// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, sized for the program's limits.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for SelectArgs {}
// SAFETY: as above; the plan's check has found all groups within their rows.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for GluArgs {}
// SAFETY: as above; the plan's check has found a result for every weight.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for SumArgs {}

pub(crate) fn embed(c: &mut Compiler<'_>, op: &NamedOp, o: &Embed) -> Result<Box<dyn Call>, BackendError> {
    let w = c.recording.weight(o.table);
    let ty = w.ty.id();
    let row_bytes = w.ty.row_bytes(w.cols).filter(|_| TYPES.contains(&ty));
    let Some(row_bytes) = row_bytes else {
        let name = &c.recording.tensors[o.table.index()].name;
        return Err(Compiler::unsupported(op, format!("tensor {name} is {}, which cannot be decoded", w.ty)));
    };
    let function = c.function(&embed_variant(ty), "embed")?;
    let (table, out) = (c.weight(o.table)?.data, c.operand(o.out)?);
    let args = EmbedArgs { table, row_bytes: row_bytes as u64, out: out.rows, scale: o.scale, padding: 0 };
    Ok(by_column(function, args, out))
}

pub(crate) fn input(c: &mut Compiler<'_>, o: &Input) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&Variant::plain("input"), "input")?;
    let (index, out) = (small(o.index)?, c.operand(o.out)?);
    Ok(by_column(function, InputArgs { out: out.rows, index, padding: 0 }, out))
}

pub(crate) fn select_rows(c: &mut Compiler<'_>, o: &SelectRows) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&Variant::plain("select_rows"), "select_rows")?;
    let (x, out) = (c.operand(o.x)?, c.operand(o.out)?);
    Ok(by_column(function, SelectArgs { x: x.rows, out: out.rows }, out))
}

pub(crate) fn glu(c: &mut Compiler<'_>, o: &Glu) -> Result<Box<dyn Call>, BackendError> {
    let entry = match o.act {
        Activation::GeluTanh => "glu_gelu",
        Activation::Silu => "glu_silu",
    };
    let function = c.function(&Variant::plain("glu"), entry)?;
    let (gate, up, out) = (c.operand(o.gate)?, c.operand(o.up)?, c.operand(o.out)?);
    let (apart, kind) = (small(o.stride)?, kind_code(out.kind));
    Ok(by_column(function, GluArgs { gate: gate.rows, up: up.rows, out: out.rows, apart, kind }, out))
}

pub(crate) fn expert_sum(c: &mut Compiler<'_>, o: &ExpertSum) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&Variant::plain("expert_sum"), "expert_sum")?;
    let (x, weights, out) = (c.operand(o.x)?, c.operand(o.weights)?, c.operand(o.out)?);
    let kind = kind_code(out.kind);
    let args = SumArgs { x: x.rows, weights: weights.rows, out: out.rows, kind, padding: 0 };
    Ok(by_column(function, args, out))
}
