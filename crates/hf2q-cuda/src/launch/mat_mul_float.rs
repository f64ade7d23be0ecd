//! Products with float weights, in f32, from the file's own layout.

use std::sync::Arc;

use hf2q_gguf::TensorType;
use hf2q_plan::{BackendError, ExpertInput, NamedOp, RowKind, TensorId, View};

use super::mat_mul::Product;
use super::mat_mul_experts::{Choice, Grouping};
use super::mat_mul_one::{AtOneRow, Chooses, Piece};
use super::{Arguments, Call, Cx, Grid, MAX_Y, Region, Rows, kind_code, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

const TYPES: [TensorType; 3] = [TensorType::F32, TensorType::F16, TensorType::Bf16];

/// Warps of a block.
const WARPS: usize = 4;

/// Up to so many warps have blocks of their own.
const FEW: usize = 1024;

/// Entries of a span and weight rows of a warp: for one row, for more with few weights, and for more.
const SHAPES: [(usize, usize); 3] = [(1, 1), (8, 1), (8, 4)];

/// Whether this file multiplies with weights of a type.
pub(super) fn multiplies(ty: TensorType) -> bool {
    TYPES.contains(&ty)
}

fn variant(ty: TensorType, (rows, outs): (usize, usize)) -> Variant {
    let word = |n: usize| u32::try_from(n).expect("a small constant");
    Variant::plain("mat_mul_float").with("WEIGHT", ty.id()).with("ROWS", word(rows)).with("OUTS", word(outs))
}

pub(super) fn variants() -> Vec<Variant> {
    TYPES.into_iter().flat_map(|ty| SHAPES.map(|shape| variant(ty, shape))).collect()
}

/// `FloatProduct` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    weight: u64,
    matrix_bytes: u64,
    x: Rows,
    out: Rows,
    experts: Rows,
    list: u64,
    kind: u32,
    n_in: u32,
    n_out: u32,
    top_k: u32,
    per_expert: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, the rest was allocated for the
// limits of the program.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct Multiply {
    functions: [Function; SHAPES.len()],
    args: Args,
    kind: RowKind,
    choice: Option<Choice>,
    /// As a product that is launched with others.
    piece: Option<Piece>,
}

impl Call for Multiply {
    fn at_one_row(&self) -> AtOneRow {
        self.piece.as_ref().map_or(AtOneRow::Own, |piece| AtOneRow::Products(vec![piece.clone()]))
    }

    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let (rows, mut args) = (cx.count(self.kind), self.args);
        let spans = spans(self.choice.as_ref(), rows);
        let single = match &self.choice {
            None => rows <= 1,
            Some(choice) => choice.grouping(rows) == Grouping::Single,
        };
        args.list = self.choice.as_ref().filter(|_| !single).map_or(0, |choice| choice.list);
        let outs = args.n_out as usize;
        let index = if single { 0 } else { 1 + usize::from(outs * spans > FEW) };
        let units = outs.div_ceil(SHAPES[index].1);
        // So few warps as a router needs are spread over the device.
        let warps = if units * spans <= FEW { 1 } else { WARPS };
        let blocks = [units.div_ceil(warps), spans, 1];
        launch_ahead(cx, self.functions[index], Grid::new(blocks, 32 * warps), &args)
    }
}

/// Spans of so many rows.
fn spans(choice: Option<&Choice>, rows: usize) -> usize {
    match choice {
        None if rows <= 1 => rows,
        None => rows.div_ceil(SHAPES[1].0),
        Some(choice) => choice.spans(rows, choice.grouping(rows)),
    }
}

/// Prepares a product.
pub(super) fn prepare(
    c: &mut Compiler<'_>,
    op: &NamedOp,
    (weight, x, out): (TensorId, View, View),
    choice: Option<Choice>,
) -> Result<Box<dyn Call>, BackendError> {
    let w = c.weight(weight)?;
    let [one, few, more] = SHAPES.map(|shape| c.function(&variant(w.ty, shape), "mat_mul_float"));
    let (written, (x, out)) = (out, (c.operand(x)?, c.operand(out)?));
    let spans = spans(choice.as_ref(), c.max_rows(out.kind));
    if spans > MAX_Y {
        let why =
            format!("{spans} blocks of rows, accepted are {MAX_Y}: open the program for fewer rows a step");
        return Err(Compiler::unsupported(op, why));
    }
    let row_bytes = w.ty.block_bytes() * w.n_in;
    let args = Args {
        weight: w.data,
        matrix_bytes: (row_bytes * w.n_out) as u64,
        x: x.rows,
        out: out.rows,
        experts: choice.as_ref().map_or(Rows { data: 0, stride: 0, width: 0 }, |choice| choice.experts),
        list: 0,
        kind: kind_code(out.kind),
        n_in: small(w.n_in)?,
        n_out: small(w.n_out)?,
        top_k: choice.as_ref().map_or(1, |choice| choice.experts.width),
        per_expert: choice.as_ref().map_or(0, |choice| (choice.input == ExpertInput::PerExpert).into()),
        padding: 0,
    };
    let piece = (choice.is_none() && w.ty == TensorType::F32).then(|| piece(&args, out.kind)).flatten();
    let piece = piece.map(|piece| Piece { chooses: router(c, written), ..piece });
    Ok(Box::new(Multiply { functions: [one?, few?, more?], args, kind: out.kind, choice, piece }))
}

/// A product with f32 weights as one that is launched with others.
fn piece(args: &Args, kind: RowKind) -> Option<Piece> {
    let whole = args.n_in.is_multiple_of(8) && args.x.data.is_multiple_of(16);
    let product = Product {
        weight: args.weight,
        matrix_bytes: args.matrix_bytes,
        codes: 0,
        groups: 0,
        out: args.out,
        experts: args.experts,
        list: 0,
        kind: args.kind,
        n_in: args.n_in,
        n_out: args.n_out,
        top_k: 1,
        per_expert: 0,
        tiles: 1,
    };
    let ty = TensorType::F32;
    whole.then_some(Piece {
        ty,
        product,
        spans: 1,
        kind,
        gated: None,
        ahead: Region::default(),
        x: Some(args.x),
        chooses: None,
    })
}

/// Notes a product whose last block may choose experts by what it writes.
fn router(c: &mut Compiler<'_>, out: View) -> Option<Arc<Chooses>> {
    let routers = c.quantized.routers.as_mut()?;
    let chooses = Arc::new(Chooses::default());
    routers.push((out, Arc::clone(&chooses)));
    Some(chooses)
}
