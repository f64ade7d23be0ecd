//! Products of one row in one launch: those that wait for the same, with weights of up to two quantized formats and in f32.
//!
//! A launch of one row takes about as long to begin and to end as to multiply. So gated units are made where they are read, and the
//! last block of a router chooses the experts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hf2q_gguf::TensorType;
use hf2q_plan::{BackendError, Glu, RowKind, View};

use super::mat_mul::{Product, SHARED, tile_shared, walkers};
use super::mat_mul_pack::LAYOUTS;
use super::route::Args as RouteArgs;
use super::{Arguments, Call, Cx, Grid, Region, Rows, launch_ahead};
use crate::compile::Compiler;
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Most products of a launch.
const MOST: usize = 4;

/// Warps of a block that has products of several inputs, and of all others at most: `WARPS` of the kernel.
const WARPS: usize = 8;

/// Most gated units of a row that every block makes anew.
const UNITS: usize = 4096;

/// Whether products may make gated units, `parts` quantized rows of each row, where there is one row.
pub(crate) fn makes(o: &Glu, parts: usize) -> bool {
    o.out.width / parts <= UNITS
}

/// Most experts of a router whose last block chooses.
pub(super) const EXPERTS: usize = 128;

/// Formats that occur in one model beside each other: what `llama-quantize` mixes.
const PAIRS: [[TensorType; 2]; 7] = [
    [TensorType::Q5_0, TensorType::Q4K],
    [TensorType::Q8_0, TensorType::Q4K],
    [TensorType::Q4K, TensorType::Q6K],
    [TensorType::Q5_1, TensorType::Q5K],
    [TensorType::Q8_0, TensorType::Q5K],
    [TensorType::Q5K, TensorType::Q6K],
    [TensorType::Q8_0, TensorType::Q6K],
];

const FILE: &str = "mat_mul_one";

/// Bytes of shared memory that a launch may ask for, and what the kernel has beside that: the limit is one of both.
const MOST_SHARED: usize = SHARED + UNITS * 3 / 2 + WARPS * 16 * 12 * size_of::<f32>();

fn variant(ty: TensorType, other: Option<TensorType>) -> Variant {
    let variant = Variant::plain(FILE).with("WEIGHT", ty.id());
    other.map_or(variant.clone(), |other| variant.with("OTHER", other.id()))
}

pub(super) fn variants() -> Vec<Variant> {
    let alone = LAYOUTS.iter().map(|layout| variant(layout.ty, None));
    alone.chain(PAIRS.map(|[a, b]| variant(a, Some(b)))).collect()
}

/// The kernel for weights of one format.
pub(super) fn function(c: &Compiler<'_>, ty: TensorType) -> Result<Function, BackendError> {
    c.function_with(&variant(ty, None), FILE, MOST_SHARED)
}

/// Gated units of which no values have been written.
#[derive(Clone)]
pub(super) struct Gated {
    pub(super) view: View,
    /// Quantized rows of a row.
    pub(super) parts: usize,
    pub(super) x: Rows,
    pub(super) up: Rows,
    /// `GELU` or `SILU` of the kernel.
    pub(super) act: u32,
    pub(super) apart: u32,
    /// Whether quantized values are needed where there is one row, too.
    pub(super) needed: Arc<AtomicBool>,
}

/// What a router is followed by.
#[derive(Default)]
pub(super) struct Chooses {
    pub(super) route: Mutex<Option<RouteArgs>>,
    /// Whether its last block chooses where there is one row.
    active: AtomicBool,
}

impl Chooses {
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }
}

/// A product of one row.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(super) ty: TensorType,
    pub(super) product: Product,
    /// Matrices that a row is multiplied with.
    pub(super) spans: usize,
    pub(super) kind: RowKind,
    pub(super) gated: Option<Gated>,
    /// Matrices of experts that are read next, of which this product knows the experts.
    pub(super) ahead: Region,
    /// Of products with f32 weights: the input.
    pub(super) x: Option<Rows>,
    pub(super) chooses: Option<Arc<Chooses>>,
}

/// `One` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct One {
    product: Product,
    x: Rows,
    up: Rows,
    act: u32,
    apart: u32,
    ahead: Region,
    format: u32,
    blocks: u32,
    end: u32,
    sums: u32,
}

/// `Ones` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Ones {
    of: [One; MOST],
    route: RouteArgs,
    routed: u64,
    padding: u64,
}

// SAFETY: the fields are those of the kernel's structures; rows lie in the arena, the rest was allocated for the limits of
// the program.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Ones {}

const NO_ROWS: Rows = Rows { data: 0, stride: 0, width: 0 };

impl Piece {
    fn chunks(&self) -> usize {
        self.product.chunks()
    }

    fn most_tiles(&self) -> usize {
        (SHARED / tile_shared(self.product.n_in as usize, 1).max(1)).clamp(1, 64).min(self.product.tiles())
    }

    fn is_float(&self) -> bool {
        self.x.is_some()
    }

    /// Blocks of a span that take so many tiles each.
    fn blocks(&self, each: usize) -> usize {
        match self.is_float() {
            true => (self.product.n_out as usize).div_ceil(WARPS),
            false => self.product.tiles().div_ceil(each),
        }
    }
}

/// Tiles of a block of each product, and warps of all blocks.
type Shapes = (Vec<usize>, usize);

/// What the last block of a router chooses, and where such blocks are counted.
type Routed = Option<(RouteArgs, u64)>;

fn shapes(pieces: &[Piece], multiprocessors: usize) -> Shapes {
    if let [piece] = pieces
        && piece.gated.is_none()
    {
        return alone(pieces, multiprocessors);
    }
    let most = 2 * multiprocessors;
    let blocks = |each: &[usize]| pieces.iter().zip(each).map(|(p, &n)| p.blocks(n) * p.spans).sum::<usize>();
    // Warps of all products have as many chunks to multiply, as few as blocks that run at once allow.
    let rounds = (1..=32).map(|round| {
        let each = |p: &Piece| (WARPS * round / p.chunks()).clamp(1, p.most_tiles());
        pieces.iter().map(each).collect::<Vec<_>>()
    });
    let mut last = vec![1; pieces.len()];
    for each in rounds {
        last = each;
        if blocks(&last) <= most {
            break;
        }
    }
    (last, WARPS)
}

/// Products of one input, whose tiles are spread over blocks as if they were one's.
fn alone(pieces: &[Piece], multiprocessors: usize) -> Shapes {
    let first = &pieces[0];
    let tiles = pieces.iter().map(|piece| piece.product.tiles()).sum();
    let shared = tile_shared(first.product.n_in as usize, 1);
    let (each, warps) = walkers((tiles, first.chunks(), first.spans), shared, (multiprocessors, WARPS));
    (vec![each; pieces.len()], warps)
}

/// Queues products of one row, which `function` has the formats of: `format` gives a product's.
fn queue(
    cx: &Cx<'_>,
    function: Function,
    pieces: &[Piece],
    ((each, warps), routed): (Shapes, Routed),
    format: impl Fn(&Piece) -> u32,
) -> Result<(), CudaError> {
    let word = |n: usize| u32::try_from(n).expect("grids are bounded by the limits of a program");
    let (mut end, mut shared) = (0, 0);
    let mut all = Vec::new();
    for (piece, each) in pieces.iter().zip(each) {
        let n_in = piece.product.n_in as usize;
        let (blocks, sums) = (piece.blocks(each), each * tile_shared(n_in, 1));
        end += blocks * piece.spans;
        let gated = piece.gated.as_ref();
        shared = shared.max(sums + gated.map_or(0, |_| n_in.next_multiple_of(256) * 3 / 2));
        all.push(One {
            product: Product { tiles: word(each), ..piece.product },
            x: gated.map(|g| g.x).or(piece.x).unwrap_or(NO_ROWS),
            up: gated.map_or(NO_ROWS, |g| g.up),
            act: gated.map_or(0, |g| g.act),
            apart: gated.map_or(0, |g| g.apart),
            ahead: piece.ahead,
            format: format(piece),
            blocks: word(blocks),
            end: word(end),
            sums: word(sums),
        });
    }
    let Some(&last) = all.last() else { return Ok(()) };
    let (route, routed) = routed.unwrap_or((RouteArgs::none(), 0));
    let args = Ones { of: std::array::from_fn(|i| *all.get(i).unwrap_or(&last)), route, routed, padding: 0 };
    launch_ahead(cx, function, Grid { blocks: [end, 1, 1], threads: [32, warps, 1], shared }, &args)
}

/// Queues products of one input with weights of one format.
pub(super) fn queue_alone(
    cx: &Cx<'_>,
    function: Function,
    pieces: &[Piece],
    multiprocessors: usize,
) -> Result<(), CudaError> {
    let shapes = match pieces {
        [_] => shapes(pieces, multiprocessors),
        _ if pieces.iter().any(|p| p.gated.is_some()) => shapes(pieces, multiprocessors),
        _ => alone(pieces, multiprocessors),
    };
    queue(cx, function, pieces, (shapes, None), |_| 0)
}

/// What a call does where there is one row.
pub(crate) enum AtOneRow {
    /// What it always does.
    Own,
    Nothing,
    /// Products that may be launched with others.
    Products(Vec<Piece>),
}

/// Calls that are one launch where there is one row.
struct Group {
    calls: Vec<Box<dyn Call>>,
    function: Function,
    pieces: Vec<Piece>,
    first: TensorType,
    kind: RowKind,
    routed: Routed,
    multiprocessors: usize,
}

impl Call for Group {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        if cx.count(self.kind) != 1 {
            return self.calls.iter().try_for_each(|call| call.launch(cx));
        }
        let format = |piece: &Piece| match piece.is_float() {
            true => 2,
            false => u32::from(piece.ty != self.first),
        };
        let shapes = shapes(&self.pieces, self.multiprocessors);
        queue(cx, self.function, &self.pieces, (shapes, self.routed), format)
    }
}

/// Calls that do not wait for each other, some of them grouped.
pub(crate) fn grouped(
    c: &mut Compiler<'_>,
    calls: Vec<Box<dyn Call>>,
) -> Result<Vec<Box<dyn Call>>, BackendError> {
    let mut done: Vec<Box<dyn Call>> = Vec::new();
    let (mut open, mut pieces): (Vec<Box<dyn Call>>, Vec<Piece>) = (Vec::new(), Vec::new());
    for call in calls {
        let own = match call.at_one_row() {
            AtOneRow::Own => {
                done.append(&mut close(c, &mut open, &mut pieces)?);
                done.push(call);
                continue;
            }
            AtOneRow::Nothing => Vec::new(),
            AtOneRow::Products(own) => own,
        };
        if !fit(&pieces, &own) {
            done.append(&mut close(c, &mut open, &mut pieces)?);
        }
        pieces.extend(own);
        open.push(call);
    }
    done.append(&mut close(c, &mut open, &mut pieces)?);
    Ok(done)
}

/// The formats of products, in the order of a kernel that has them.
fn formats(pieces: &[Piece]) -> Option<(TensorType, Option<TensorType>)> {
    let mut types: Vec<TensorType> = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_float()) {
        if !types.contains(&piece.ty) {
            types.push(piece.ty);
        }
    }
    match types[..] {
        [ty] => Some((ty, None)),
        [a, b] => PAIRS.iter().find(|p| p.contains(&a) && p.contains(&b)).map(|&[a, b]| (a, Some(b))),
        _ => None,
    }
}

/// Whether products can be launched with others.
fn fit(pieces: &[Piece], more: &[Piece]) -> bool {
    let all: Vec<Piece> = pieces.iter().chain(more).cloned().collect();
    let floats = all.iter().filter(|piece| piece.is_float()).count();
    let quantized = all.len() - floats;
    all.len() <= MOST
        && floats <= 1
        && (quantized == 0 || formats(&all).is_some())
        && all.iter().all(|piece| piece.kind == all[0].kind)
}

/// Ends a group, which is one launch where that saves one.
fn close(
    c: &mut Compiler<'_>,
    open: &mut Vec<Box<dyn Call>>,
    pieces: &mut Vec<Piece>,
) -> Result<Vec<Box<dyn Call>>, BackendError> {
    let (calls, pieces) = (std::mem::take(open), std::mem::take(pieces));
    let launches = calls.iter().filter(|call| matches!(call.at_one_row(), AtOneRow::Products(_))).count();
    let Some((first, other)) = formats(&pieces).filter(|_| launches > 1) else { return Ok(calls) };
    let chooses = pieces.iter().find_map(|piece| piece.chooses.clone());
    let route = chooses.and_then(|chooses| {
        let route = *chooses.route.lock().unwrap_or_else(PoisonError::into_inner);
        chooses.active.store(route.is_some(), Ordering::Relaxed);
        route
    });
    let routed = match route {
        Some(route) => Some((route, c.allocate("blocks of a router that are done", size_of::<u32>())?)),
        None => None,
    };
    let function = c.function_with(&variant(first, other), FILE, MOST_SHARED)?;
    let multiprocessors = c.device.info.multiprocessors as usize;
    let kind = pieces[0].kind;
    Ok(vec![Box::new(Group { calls, function, pieces, first, kind, routed, multiprocessors })])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(ty: TensorType, n_in: u32, n_out: u32, spans: usize) -> Piece {
        let product = Product {
            weight: 0,
            matrix_bytes: 0,
            codes: 0,
            groups: 0,
            out: NO_ROWS,
            experts: NO_ROWS,
            list: 0,
            kind: 0,
            n_in,
            n_out,
            top_k: 1,
            per_expert: 0,
            tiles: 1,
        };
        let (kind, ahead) = (RowKind::Step, Region::default());
        let x = (ty == TensorType::F32).then_some(NO_ROWS);
        Piece { ty, product, spans, kind, gated: None, ahead, x, chooses: None }
    }

    #[test]
    fn products_of_a_launch_run_at_once_and_fit_shared_memory() {
        // Down projection of a dense network beside eight experts' first matrices; a router beside a network.
        let pairs = [
            [piece(TensorType::Q8_0, 2112, 2816, 1), piece(TensorType::Q4K, 2816, 1408, 8)],
            [piece(TensorType::Q4K, 2816, 4224, 1), piece(TensorType::F32, 2816, 128, 1)],
            [piece(TensorType::Q4K, 5376, 20480, 1), piece(TensorType::Q6K, 5376, 4096, 1)],
        ];
        for pieces in pairs {
            let (each, warps) = shapes(&pieces, 132);
            let blocks: usize = pieces.iter().zip(&each).map(|(p, &n)| p.blocks(n) * p.spans).sum();
            assert!(blocks <= 264 && warps == WARPS, "{blocks} blocks");
            for (piece, each) in pieces.iter().zip(each) {
                assert!(each * tile_shared(piece.product.n_in as usize, 1) <= SHARED);
            }
        }
    }

    #[test]
    fn only_formats_that_there_is_a_kernel_for_are_launched_together() {
        let of = |types: &[TensorType]| types.iter().map(|&ty| piece(ty, 256, 64, 1)).collect::<Vec<_>>();
        let both = |a: &[TensorType], b: &[TensorType]| fit(&of(a), &of(b));
        use TensorType::{F32, Q4K, Q5_0, Q6K, Q8_0};
        assert!(both(&[Q4K, F32], &[Q6K]) && both(&[Q8_0], &[Q8_0]) && both(&[], &[F32]));
        assert!(!both(&[Q4K, Q6K], &[Q8_0]), "three formats");
        assert!(!both(&[Q5_0], &[Q6K]), "no such kernel");
        assert!(!both(&[F32], &[F32, Q4K]), "two routers");
        assert!(!both(&[Q4K, Q4K, Q4K], &[Q4K, Q4K]), "too many");
        assert_eq!(formats(&of(&[Q6K, Q4K])), Some((Q4K, Some(Q6K))));
    }
}
