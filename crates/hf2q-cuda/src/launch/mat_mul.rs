//! Matrix products with quantized weights.
//!
//! The weights are packed for the tensor cores once ([`super::mat_mul_pack`]), activations are quantized once for all
//! products of a wave ([`super::mat_mul_quantize`]), and products of one input with weights of one format are launched
//! together. Which kernel multiplies depends on the numbers of rows and of weights; all accumulate in one order.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use hf2q_gguf::TensorType;
use hf2q_plan::{BackendError, ExpertInput, ExpertMatMul, MatMul, NamedOp, RowKind, TensorId, View};

use super::mat_mul_experts::{self, Choice, Grouping};
use super::mat_mul_one::{self, AtOneRow, Chooses, Gated, Piece};
use super::mat_mul_pack::{self, Layout, Packed};
use super::mat_mul_quantize::{self, Slots};
use super::{Arguments, Call, Cx, Grid, Region, Rows, kind_code, launch_ahead, mat_mul_float};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Weight rows of a tile, `TILE` of the kernels.
pub(super) const TILE: usize = 16;

/// Values of a chunk of k: two steps of 256.
const CHUNK: usize = 512;

/// Most warps of a block that walks tiles.
const WALKERS: usize = 8;

/// Warps of a block of `mat_mul_many`, its tiles, and the entries that it multiplies.
const MANY_WARPS: usize = 4;
const MANY_TILES: usize = 2 * MANY_WARPS;
pub(super) const MANY: usize = 64;

/// Most entries of a product that the tiles of `mat_mul_many` are too few for.
const SOME: usize = 64;

/// Bytes of shared memory that tiles of one block may take together.
pub(super) const SHARED: usize = 40 * 1024;

/// What products share: packed weights, quantized activations and lists of entries that are up to date.
#[derive(Default)]
pub(crate) struct Quantized {
    pub(super) packed: Vec<(TensorId, Packed)>,
    pub(super) activations: Slots<(View, usize)>,
    pub(super) lists: Slots<(View, bool)>,
    pub(super) last_read: LastRead,
    /// Gated units that may be made where they are read.
    pub(super) gated: Vec<Gated>,
    /// The weight that products with the same experts read next.
    pub(crate) next: Option<TensorId>,
    /// Routers that may choose, by what they write; `None`: operations are prepared one by one.
    pub(super) routers: Option<Vec<(View, Arc<Chooses>)>>,
    /// Products of the wave.
    together: Vec<Together>,
}

/// Which activations are read by what is prepared now or later: often nothing but their quantized values is written.
#[derive(Default)]
pub(crate) struct LastRead {
    /// The last part of a plan that reads an activation.
    parts: HashMap<TensorId, usize>,
    /// The part that is prepared.
    now: usize,
}

impl LastRead {
    pub(super) fn is_needed(&self, activation: TensorId) -> bool {
        self.parts.get(&activation).is_some_and(|&last| last >= self.now)
    }
}

impl Quantized {
    /// Parts of a plan are prepared, which read these activations.
    pub(crate) fn read_by(&mut self, parts: impl Iterator<Item = (TensorId, usize)>) {
        // Later parts replace earlier ones.
        self.last_read.parts = parts.collect();
    }

    /// A part of the plan is prepared.
    pub(crate) fn begin(&mut self, part: usize) {
        self.last_read.now = part;
    }

    /// Called after the wave that writes an activation.
    pub(crate) fn forget(&mut self, written: TensorId) {
        self.activations.end_wave(|(view, _)| view.tensor == written);
        self.lists.end_wave(|(view, _)| view.tensor == written);
        self.together.clear();
    }

    /// Nothing that was derived is up to date. Operations that are prepared from now on may be launched together; where each
    /// activation has one value, a product may do what reads its result.
    pub(crate) fn restart(&mut self, have_one_value: bool) {
        self.routers = have_one_value.then(Vec::new);
        self.activations.end_wave(|_| true);
        self.lists.end_wave(|_| true);
        self.together.clear();
    }

    /// Adds a product to an earlier one of the wave; `Some`: there is none, and these are to be launched.
    fn join(&mut self, key: (View, TensorType), product: Product) -> Option<Arc<Mutex<Vec<Product>>>> {
        for earlier in self.together.iter().filter(|earlier| earlier.key == key) {
            let mut products = earlier.products.lock().unwrap_or_else(PoisonError::into_inner);
            if products.len() < TOGETHER {
                products.push(product);
                return None;
            }
        }
        let products = Arc::new(Mutex::new(vec![product]));
        self.together.push(Together { key, products: Arc::clone(&products) });
        Some(products)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let products = mat_mul_pack::LAYOUTS.iter().flat_map(|layout| {
        let kernels = KERNELS.iter().filter_map(|kernel| kernel.variant(layout.ty.id()));
        kernels.chain([mat_mul_pack::variant(layout)])
    });
    let others = [mat_mul_quantize::variant(), mat_mul_experts::variant()];
    products.chain(others).chain(mat_mul_one::variants()).chain(mat_mul_float::variants()).collect()
}

/// The kernels: up to so many entries of a span, and how k is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// One entry: see [`mat_mul_one`].
    One,
    /// Up to 4 entries.
    Few(usize),
    /// Up to 8 entries for each of 1 or 2.
    Columns(usize),
    /// [`MANY`] entries.
    Many,
}

const KERNELS: [Kernel; 6] =
    [Kernel::One, Kernel::Few(2), Kernel::Few(4), Kernel::Columns(1), Kernel::Columns(2), Kernel::Many];

impl Kernel {
    /// Position in [`KERNELS`] of the kernel for so many rows and tiles. Many rows of few tiles do not fill a device with
    /// blocks that walk all of k.
    fn of_rows(rows: usize, tiles: usize, multiprocessors: usize) -> usize {
        let blocks = rows.div_ceil(MANY / 2) * tiles.div_ceil(MANY_TILES);
        match rows {
            0..=1 => 0,
            2 => 1,
            3..=4 => 2,
            5..=8 => 3,
            9..=16 => 4,
            17..=SOME if blocks < multiprocessors => 4,
            _ => 5,
        }
    }

    /// Position in [`KERNELS`] of the kernel for spans of chosen experts.
    fn of_grouping(grouping: Grouping) -> usize {
        match grouping {
            Grouping::Single => 0,
            Grouping::Spans(8) => 3,
            Grouping::Spans(16) => 4,
            Grouping::Spans(_) => 5,
        }
    }

    /// Entries of a span.
    fn width(self) -> usize {
        match self {
            Self::One => 1,
            Self::Few(rows) => rows,
            Self::Columns(n) => 8 * n,
            Self::Many => MANY,
        }
    }

    fn variant(self, ty: u32) -> Option<Variant> {
        match self {
            Self::One => None,
            Self::Few(rows) => Some(named("mat_mul_few", ty, ("ROWS", rows))),
            Self::Columns(n) => Some(named("mat_mul_cols", ty, ("COLUMNS", n))),
            Self::Many => Some(named("mat_mul_many", ty, ("WARPS", MANY_WARPS))),
        }
    }

    /// Most warps of a block that walks, by the registers of a lane: most where halves have scales of their own.
    fn warps(self, layout: &Layout) -> usize {
        match self {
            Self::Columns(2) if layout.sums == 2 => 4,
            Self::Few(4) if layout.sums == 2 => 5,
            Self::Columns(1) if layout.sums == 2 => 6,
            Self::Columns(2) => 6,
            _ => WALKERS,
        }
    }

    /// Bytes of shared memory for the sums of a tile.
    fn tile_shared(self, n_in: usize) -> usize {
        tile_shared(n_in, self.width())
    }

    fn function(self, c: &Compiler<'_>, layout: &Layout, n_in: usize) -> Result<Function, BackendError> {
        let Some(variant) = self.variant(layout.ty.id()) else { return mat_mul_one::function(c, layout.ty) };
        let shared = if self == Self::Many { many_shared(layout) } else { self.tile_shared(n_in) };
        c.function_with(&variant, variant.file, shared)
    }
}

/// Bytes of shared memory for the sums of a tile with so many entries.
pub(super) fn tile_shared(n_in: usize, entries: usize) -> usize {
    n_in.div_ceil(CHUNK) * TILE * entries * size_of::<f32>()
}

fn named(file: &'static str, ty: u32, (name, value): (&'static str, usize)) -> Variant {
    Variant::plain(file).with("WEIGHT", ty).with(name, u32::try_from(value).expect("a small constant"))
}

/// `Memory` of `mat_mul_many.cu`, as if all formats had minimums: two stages of half a step, with codes in rows of 160 bytes, scales
/// and what is derived of sums; groups of four floats; scales of the rows of a step; totals.
fn many_shared(layout: &Layout) -> usize {
    let by_group = MANY * 4 * size_of::<f32>();
    let stages = 2 * (MANY * 160 + by_group * (1 + layout.sums.max(1)));
    let rows = TILE * MANY_TILES;
    stages + 4 * by_group + rows * (8 * 2 * size_of::<f32>() * layout.sums.max(1) + MANY * size_of::<f32>())
}

/// Tiles of a block and its warps, so that the slowest warp of all blocks has least to do. Two blocks of `most_warps` run on
/// each of the multiprocessors, and a block costs about as much as a chunk and a half to begin with.
pub(super) fn walkers(
    (tiles, chunks, spans): (usize, usize, usize),
    tile_shared: usize,
    (multiprocessors, most_warps): (usize, usize),
) -> (usize, usize) {
    let cost = |(each, warps): (usize, usize)| {
        let blocks = tiles.div_ceil(each) * spans;
        let waves = blocks.div_ceil(multiprocessors * (2 * most_warps / warps));
        waves * (2 * (each * chunks).div_ceil(warps) + 3)
    };
    let most = (SHARED / tile_shared.max(1)).clamp(1, 64).min(tiles.max(1));
    let shapes = (1..=most).flat_map(|each| {
        let warps = most_warps.min(each * chunks);
        (warps.div_ceil(2)..=warps).rev().map(move |warps| (each, warps))
    });
    shapes.min_by_key(|&shape| cost(shape)).unwrap_or((1, 1))
}

/// `Product` of `quant_product.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Product {
    pub(super) weight: u64,
    pub(super) matrix_bytes: u64,
    pub(super) codes: u64,
    pub(super) groups: u64,
    pub(super) out: Rows,
    pub(super) experts: Rows,
    pub(super) list: u64,
    pub(super) kind: u32,
    pub(super) n_in: u32,
    pub(super) n_out: u32,
    pub(super) top_k: u32,
    pub(super) per_expert: u32,
    pub(super) tiles: u32,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, the rest was allocated for the
// limits of the program.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Product {}

/// Most products of a launch.
const TOGETHER: usize = 3;

/// `Products` of `quant_product.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Products {
    of: [Product; TOGETHER],
    ends: [u32; TOGETHER],
    padding: u32,
}

// SAFETY: as for one product.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Products {}

/// Products of a wave that one call launches together: those of one input with weights of one format.
pub(crate) struct Together {
    key: (View, TensorType),
    products: Arc<Mutex<Vec<Product>>>,
}

/// What is launched together with an earlier product.
struct Launched;

impl Call for Launched {
    fn launch(&self, _cx: &Cx<'_>) -> Result<(), CudaError> {
        Ok(())
    }

    fn at_one_row(&self) -> AtOneRow {
        AtOneRow::Nothing
    }
}

struct Multiply {
    functions: [Function; KERNELS.len()],
    layout: Layout,
    /// One, or some that differ in weight and result.
    products: Arc<Mutex<Vec<Product>>>,
    kind: RowKind,
    multiprocessors: usize,
    choice: Option<Choice>,
    gated: Option<Gated>,
    /// Matrices of the same experts that are read next.
    ahead: Region,
}

impl Call for Multiply {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let rows = cx.count(self.kind);
        let mut products = self.products.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (index, spans) = match &self.choice {
            None => {
                let tiles = products.iter().map(Product::tiles).sum();
                let index = Kernel::of_rows(rows, tiles, self.multiprocessors);
                (index, rows.div_ceil(KERNELS[index].width()))
            }
            Some(choice) => {
                let grouping = choice.grouping(rows);
                let list = if grouping == Grouping::Single { 0 } else { choice.list };
                products.iter_mut().for_each(|product| product.list = list);
                (Kernel::of_grouping(grouping), choice.spans(rows, grouping))
            }
        };
        if KERNELS[index] == Kernel::One {
            let pieces = self.pieces(&products, spans, rows == 1);
            return mat_mul_one::queue_alone(cx, self.functions[index], &pieces, self.multiprocessors);
        }
        let (grid, products) = self.grid(KERNELS[index], spans, products);
        launch_ahead(cx, self.functions[index], grid, &products)
    }

    fn at_one_row(&self) -> AtOneRow {
        let spans = match &self.choice {
            None => 1,
            Some(choice) if choice.is_single(1) => choice.spans(1, Grouping::Single),
            Some(_) => return AtOneRow::Own,
        };
        let products = self.products.lock().unwrap_or_else(PoisonError::into_inner);
        AtOneRow::Products(self.pieces(&products, spans, true))
    }
}

impl Product {
    pub(super) fn tiles(&self) -> usize {
        (self.n_out as usize).div_ceil(TILE)
    }

    /// Chunks of k.
    pub(super) fn chunks(&self) -> usize {
        (self.n_in as usize).div_ceil(CHUNK)
    }
}

impl Multiply {
    /// Products of single entries; of one row, gated units are made by the product.
    fn pieces(&self, products: &[Product], spans: usize, of_one_row: bool) -> Vec<Piece> {
        let piece = |product: &Product| Piece {
            ty: self.layout.ty,
            product: *product,
            spans,
            kind: self.kind,
            gated: self.gated.clone().filter(|_| of_one_row),
            ahead: self.ahead,
            x: None,
            chooses: None,
        };
        products.iter().map(piece).collect()
    }

    fn grid(&self, kernel: Kernel, spans: usize, mut products: Vec<Product>) -> (Grid, Products) {
        let n_in = products[0].n_in as usize;
        let (shared, chunks) = (kernel.tile_shared(n_in), n_in.div_ceil(CHUNK));
        let many = kernel == Kernel::Many;
        let (each, warps) = if many {
            (MANY_TILES, MANY_WARPS)
        } else {
            let work = (products.iter().map(Product::tiles).sum(), chunks, spans);
            walkers(work, shared, (self.multiprocessors, kernel.warps(&self.layout)))
        };
        let word = |n: usize| u32::try_from(n).expect("grids are bounded by the limits of a program");
        let (mut blocks, mut ends) = (0, [u32::MAX; TOGETHER]);
        for (product, end) in products.iter_mut().zip(&mut ends) {
            product.tiles = word(each);
            blocks += product.tiles().div_ceil(each);
            *end = word(blocks);
        }
        let last = products[products.len() - 1];
        let of = std::array::from_fn(|i| products.get(i).copied().unwrap_or(last));
        let arguments = Products { of, ends, padding: 0 };
        let grid = if many {
            let shared = many_shared(&self.layout);
            Grid { blocks: [spans, blocks, 1], threads: [32 * MANY_WARPS, 1, 1], shared }
        } else {
            Grid { blocks: [blocks, spans, 1], threads: [32, warps, 1], shared: each * shared }
        };
        (grid, arguments)
    }
}

/// Prepares a product; what must run before it is given to [`Compiler::before`].
pub(crate) fn mat_mul(c: &mut Compiler<'_>, op: &NamedOp, o: &MatMul) -> Result<Box<dyn Call>, BackendError> {
    let w = c.recording.weight(o.weight).clone();
    if mat_mul_float::multiplies(w.ty) {
        return mat_mul_float::prepare(c, op, (o.weight, o.x, o.out), None);
    }
    let Some(layout) = Layout::of(w.ty) else { return Err(unsupported(op, w.ty)) };
    multiply(c, layout, (o.weight, o.x, o.out), None)
}

/// Prepares a product with chosen experts.
pub(crate) fn expert_mat_mul(
    c: &mut Compiler<'_>,
    op: &NamedOp,
    o: &ExpertMatMul,
) -> Result<Box<dyn Call>, BackendError> {
    let w = c.recording.weight(o.weight).clone();
    let layout = Layout::of(w.ty);
    if layout.is_none() && !mat_mul_float::multiplies(w.ty) {
        return Err(unsupported(op, w.ty));
    }
    let choice = Choice::prepare(c, o, layout.is_none())?;
    match layout {
        Some(layout) => multiply(c, layout, (o.weight, o.x, o.out), Some(choice)),
        None => mat_mul_float::prepare(c, op, (o.weight, o.x, o.out), Some(choice)),
    }
}

/// Most bytes of a weight that are brought near: more would displace others.
const NEAR: u64 = 16 << 20;

/// Where a weight lies that has been prepared for products, or its beginning where it is large.
pub(crate) fn region(c: &Compiler<'_>, weight: TensorId) -> Option<Region> {
    if let Some((_, packed)) = c.quantized.packed.iter().find(|(id, _)| *id == weight) {
        return Some(Region { at: packed.data, bytes: packed.matrix_bytes.min(NEAR) });
    }
    let w = c.uploaded(weight).filter(|w| mat_mul_float::multiplies(w.ty))?;
    Some(Region { at: w.data, bytes: NEAR.min((w.ty.row_bytes(w.n_in)? * w.n_out) as u64) })
}

/// Whether products with weights of a type read quantized activations.
pub(crate) fn quantizes(ty: TensorType) -> bool {
    !mat_mul_float::multiplies(ty) && Layout::of(ty).is_some()
}

fn unsupported(op: &NamedOp, ty: hf2q_gguf::TensorType) -> BackendError {
    Compiler::unsupported(
        op,
        format!("there is no product with weights of type {ty}; convert the model to another"),
    )
}

fn multiply(
    c: &mut Compiler<'_>,
    layout: Layout,
    (weight, x, out): (TensorId, View, View),
    choice: Option<Choice>,
) -> Result<Box<dyn Call>, BackendError> {
    let w = c.recording.weight(weight).clone();
    let packed = mat_mul_pack::packed(c, weight, &layout)?;
    let parts = choice.as_ref().map_or(1, Choice::parts);
    let gated = gated(c, (x, parts), choice.as_ref());
    let next = c.quantized.next.filter(|_| choice.is_some());
    let next = next.and_then(|next| c.quantized.packed.iter().find(|(id, _)| *id == next));
    let ahead = next.map_or(Region::default(), |(_, w)| Region { at: w.data, bytes: w.matrix_bytes });
    let quantized = mat_mul_quantize::quantized(c, x, parts)?;
    let out = c.operand(out)?;
    let product = Product {
        weight: packed.data,
        matrix_bytes: packed.matrix_bytes,
        codes: quantized.codes,
        groups: quantized.groups,
        out: out.rows,
        experts: choice.as_ref().map_or(Rows { data: 0, stride: 0, width: 0 }, |choice| choice.experts),
        list: 0,
        kind: kind_code(out.kind),
        n_in: small(w.cols)?,
        n_out: small(w.rows)?,
        top_k: choice.as_ref().map_or(1, |choice| choice.experts.width),
        per_expert: choice.as_ref().map_or(0, |choice| (choice.input == ExpertInput::PerExpert).into()),
        tiles: 1,
    };
    let products = match choice {
        None => c.quantized.join((x, layout.ty), product),
        Some(_) => Some(Arc::new(Mutex::new(vec![product]))),
    };
    let Some(products) = products else { return Ok(Box::new(Launched)) };
    let functions = KERNELS.iter().map(|kernel| kernel.function(c, &layout, w.cols));
    let functions: Vec<_> = functions.collect::<Result<_, _>>()?;
    let functions = functions.try_into().unwrap_or_else(|_| unreachable!("one for each of KERNELS"));
    let multiprocessors = c.device.info.multiprocessors as usize;
    Ok(Box::new(Multiply {
        functions,
        layout,
        products,
        kind: out.kind,
        multiprocessors,
        choice,
        gated,
        ahead,
    }))
}

/// Gated units that a product makes itself where there is one row, if its input is some.
fn gated(c: &Compiler<'_>, (x, parts): (View, usize), choice: Option<&Choice>) -> Option<Gated> {
    let found = c.quantized.gated.iter().find(|g| (g.view, g.parts) == (x, parts))?;
    if choice.is_none_or(|choice| choice.is_single(1)) {
        return Some(found.clone());
    }
    found.needed.store(true, Ordering::Relaxed);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_rows_has_a_kernel_that_holds_them() {
        for rows in 1..=16 {
            assert!(KERNELS[Kernel::of_rows(rows, 4, 132)].width() >= rows, "{rows} rows");
        }
        assert_eq!(KERNELS[Kernel::of_rows(SOME, 4, 132)], Kernel::Columns(2));
        assert_eq!(KERNELS[Kernel::of_rows(SOME + 1, 4, 132)], Kernel::Many);
        assert_eq!(KERNELS[Kernel::of_rows(SOME, 1344, 132)], Kernel::Many);
        for grouping in [Grouping::Single, Grouping::Spans(8), Grouping::Spans(16), Grouping::Spans(MANY)] {
            assert_eq!(KERNELS[Kernel::of_grouping(grouping)].width(), grouping.width());
        }
    }

    #[test]
    fn tiles_are_spread_over_the_device() {
        // 256 tiles of 6 chunks fit at once; 16384 do not, but blocks stay within the shared memory.
        assert_eq!(walkers((256, 6, 1), 384, (132, 8)), (1, 6));
        let (each, warps) = walkers((16384, 6, 1), 384, (132, 8));
        assert!(each * 384 <= SHARED && warps >= WALKERS / 2 && each > 1);
        // 336 tiles of 42 chunks: three blocks of 5 warps on each rather than two of 8.
        assert_eq!(walkers((336, 42, 1), 2688, (132, 8)), (1, 5));
        assert_eq!(walkers((1, 1, 1), 64, (1, 8)), (1, 1));
    }
}
