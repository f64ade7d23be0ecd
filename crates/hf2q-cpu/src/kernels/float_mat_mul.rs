//! Matrix products with float weights.
//!
//! An element is the sum over sixteen lanes: lane `i` adds products `i`, `i + 16`, … of the row in that order, and the
//! lanes are added in a fixed tree. That depends on the row's length alone.

use std::ops::Range;

use hf2q_gguf::{Bytes, TensorType};

use super::picks::{ExpertShape, GroupTable, Picks};
use crate::ahead::ask_for;
use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::memory::Rows;
use crate::simd::{Kernel, LANES, Simd};
use crate::step::StepData;

/// Columns of a unit.
const COLUMNS: usize = 16;

/// Rows of a unit, so that they stay in the second cache while columns pass; a multiple of those of a register tile.
const ROWS: usize = 66;

/// Fewest rows for which narrow weights are converted once rather than for each few rows.
const WIDENED: usize = 12;

/// Longest rows of weights that are converted: eight of them then take two thirds of a first-level cache.
const WIDEST: usize = 1024;

/// Up to this many rows reading weights bounds the time, so a register tile asks for those of the next one.
const BOUND: usize = 2;

/// Bytes that memory moves at a time.
const LINE: usize = 64;

/// A stack of matrices of [`is_float`] type.
pub(crate) struct Matrix {
    pub(crate) bytes: Bytes,
    pub(crate) ty: TensorType,
    pub(crate) n_in: usize,
    pub(crate) n_out: usize,
}

/// See [`hf2q_plan::MatMul`]. A unit is a block of the result.
pub(crate) struct FloatMatMul {
    pub(crate) x: Operand,
    pub(crate) weight: Matrix,
    pub(crate) out: Operand,
}

/// See [`hf2q_plan::ExpertMatMul`]. A unit is some columns of one expert's rows.
pub(crate) struct FloatExpertMatMul {
    pub(crate) x: Operand,
    pub(crate) weight: Matrix,
    pub(crate) out: Operand,
    pub(crate) shape: ExpertShape,
    pub(crate) table: GroupTable,
}

/// Whether this file multiplies with weights of a type.
pub(crate) fn is_float(ty: TensorType) -> bool {
    matches!(ty, TensorType::F32 | TensorType::F16 | TensorType::Bf16)
}

/// Nanoseconds of a product of some rows with [`COLUMNS`] columns: memory bounds few rows, arithmetic many.
fn nanoseconds(weight: &Matrix, rows: usize) -> f32 {
    let weights = (weight.n_in * COLUMNS) as f32;
    weights * (0.2 + 0.04 * rows as f32)
}

impl VectorCall for FloatMatMul {
    fn work(&self, step: &StepData) -> Work {
        let rows = step.count(self.x.rows);
        let units = rows.div_ceil(ROWS) * self.weight.n_out.div_ceil(COLUMNS);
        Work::new(units, nanoseconds(&self.weight, rows.min(ROWS)))
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let (x, out, count) = (cx.view(self.x.place), cx.view(self.out.place), cx.count(self.x));
        let per_block = self.weight.n_out.div_ceil(COLUMNS);
        for unit in units {
            let first = unit / per_block * ROWS;
            let rows = (count - first).min(ROWS);
            let block = Block { x, out, picks: Picks::All(first), rows };
            let column = unit % per_block * COLUMNS;
            let wide = &mut scratch.floats;
            s.outline(Multiply { block, weight: &self.weight, matrix: 0, column, wide });
        }
    }

    fn ahead(&self, _step: &StepData, units: Range<usize>) {
        let Matrix { bytes, n_out, .. } = &self.weight;
        let first = units.start % n_out.div_ceil(COLUMNS) * COLUMNS;
        ask_for(&bytes[bytes.len() / n_out * first..]);
    }
}

impl VectorCall for FloatExpertMatMul {
    fn work(&self, step: &StepData) -> Work {
        let entries = step.count(self.x.rows) * self.shape.top_k;
        let active = entries.min(self.table.experts);
        let units = active * self.weight.n_out.div_ceil(COLUMNS);
        Work::new(units, nanoseconds(&self.weight, entries.div_ceil(active.max(1))))
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        let (x, out) = (cx.view(self.x.place), cx.view(self.out.place));
        let per_expert = self.weight.n_out.div_ceil(COLUMNS);
        for unit in units {
            let Some(found) = self.table.get(cx, unit / per_expert) else { continue };
            let picks = Picks::Expert(found.entries, self.shape);
            let block = Block { x, out, picks, rows: found.entries.len() };
            let column = unit % per_expert * COLUMNS;
            let wide = &mut scratch.floats;
            s.outline(Multiply { block, weight: &self.weight, matrix: found.expert, column, wide });
        }
    }
}

/// Rows of a product.
struct Block<'a> {
    x: Rows<'a>,
    out: Rows<'a>,
    picks: Picks<'a>,
    rows: usize,
}

/// Writes [`COLUMNS`] columns from `column` on, or as many as there are.
struct Multiply<'a> {
    block: Block<'a>,
    weight: &'a Matrix,
    /// Which of the stack.
    matrix: usize,
    column: usize,
    /// Memory for weights as f32.
    wide: &'a mut Vec<f32>,
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        match self.weight.ty {
            TensorType::F16 => columns::<S, F16>(s, &mut self),
            TensorType::Bf16 => columns::<S, Bf16>(s, &mut self),
            _ => columns::<S, F32>(s, &mut self),
        }
    }
}

/// How a vector of weights is read.
trait Element {
    const BYTES: usize;

    /// # Safety
    /// `LANES · BYTES` bytes from `from` must be readable.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read<S: Simd>(s: S, from: *const u8) -> S::V;
}

/// Defines an [`Element`].
macro_rules! element {
    ($name:ident, $bytes:expr, $read:ident) => {
        struct $name;

        #[expect(unsafe_code, reason = "reads through pointers, as the trait says")]
        impl Element for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn read<S: Simd>(s: S, from: *const u8) -> S::V {
                // SAFETY: the contract of the trait is that of the method.
                unsafe { s.$read(from) }
            }
        }
    };
}

element!(F32, 4, read_f32);
element!(F16, 2, read_f16);
element!(Bf16, 2, read_bf16);

#[inline(always)]
fn columns<S: Simd, E: Element>(s: S, m: &mut Multiply<'_>) {
    let Matrix { bytes, n_in, n_out, .. } = m.weight;
    let row_bytes = n_in * E::BYTES;
    let bytes = &bytes[m.matrix * n_out * row_bytes..][..n_out * row_bytes];
    let end = (m.column + COLUMNS).min(*n_out);
    let mut c = m.column;
    while S::WIDE && c + 8 <= end && m.block.rows >= WIDENED {
        let weights = Weights { bytes: &bytes[c * row_bytes..][..8 * row_bytes], n_in: *n_in };
        if E::BYTES < size_of::<f32>() && weights.n_in <= WIDEST {
            let weights = weights.widened::<S, E>(s, m.wide);
            rows::<S, F32, 4, 2>(s, &m.block, &weights, c);
        } else {
            rows::<S, E, 4, 2>(s, &m.block, &weights, c);
        }
        c += 8;
    }
    while S::WIDE && c + 4 <= end {
        let weights = Weights { bytes: &bytes[c * row_bytes..][..4 * row_bytes], n_in: *n_in };
        rows::<S, E, 4, 1>(s, &m.block, &weights, c);
        c += 4;
    }
    while !S::WIDE && c + 2 <= end {
        let weights = Weights { bytes: &bytes[c * row_bytes..][..2 * row_bytes], n_in: *n_in };
        rows::<S, E, 2, 1>(s, &m.block, &weights, c);
        c += 2;
    }
    while c < end {
        let weights = Weights { bytes: &bytes[c * row_bytes..][..row_bytes], n_in: *n_in };
        rows::<S, E, 1, 1>(s, &m.block, &weights, c);
        c += 1;
    }
}

/// Neighbouring rows of a weight matrix.
struct Weights<'a> {
    bytes: &'a [u8],
    n_in: usize,
}

impl Weights<'_> {
    /// The same weights as f32, which each of many rows would else convert again.
    #[inline(always)]
    #[expect(unsafe_code, reason = "weights are read as vectors, and shown as bytes")]
    fn widened<'a, S: Simd, E: Element>(&self, s: S, wide: &'a mut Vec<f32>) -> Weights<'a> {
        let len = self.bytes.len() / E::BYTES;
        wide.resize(len.next_multiple_of(LANES).max(wide.len()), 0.0);
        for (to, from) in wide.as_chunks_mut::<LANES>().0.iter_mut().zip(self.bytes.chunks(LANES * E::BYTES))
        {
            let mut last = [0; LANES * 4];
            let from = if from.len() < LANES * E::BYTES {
                last[..from.len()].copy_from_slice(from);
                &last
            } else {
                from
            };
            // SAFETY: the chunk, or the array, has sixteen elements.
            s.store(unsafe { E::read(s, from.as_ptr()) }, to);
        }
        // SAFETY: floats are four bytes each, all initialised.
        let bytes = unsafe { std::slice::from_raw_parts(wide.as_ptr().cast(), len * size_of::<f32>()) };
        Weights { bytes, n_in: self.n_in }
    }
}

/// All rows of the block times `TILES · N` weight rows: the rows of a register tile stay in the first-level cache for
/// all of them.
#[inline(always)]
fn rows<S: Simd, E: Element, const N: usize, const TILES: usize>(
    s: S,
    block: &Block<'_>,
    weights: &Weights<'_>,
    column: usize,
) {
    let mut row = 0;
    while S::WIDE && row + 6 <= block.rows {
        tiles::<S, E, 6, N, TILES>(s, (block, row), weights, column);
        row += 6;
    }
    while row + 2 <= block.rows {
        tiles::<S, E, 2, N, TILES>(s, (block, row), weights, column);
        row += 2;
    }
    if row < block.rows {
        tiles::<S, E, 1, N, TILES>(s, (block, row), weights, column);
    }
}

/// `M` rows of the block times `TILES · N` weight rows.
#[inline(always)]
fn tiles<S: Simd, E: Element, const M: usize, const N: usize, const TILES: usize>(
    s: S,
    at: (&Block<'_>, usize),
    weights: &Weights<'_>,
    column: usize,
) {
    let each = N * weights.n_in * E::BYTES;
    let mut i = 0;
    while i < TILES {
        let weights = Weights { bytes: &weights.bytes[i * each..(i + 1) * each], n_in: weights.n_in };
        tile::<S, E, M, N>(s, at, &weights, column + i * N);
        i += 1;
    }
}

/// `M` rows of the block times `N` weight rows.
#[inline(always)]
#[expect(unsafe_code, reason = "bounds are checked once for the whole tile")]
fn tile<S: Simd, E: Element, const M: usize, const N: usize>(
    s: S,
    (block, row): (&Block<'_>, usize),
    weights: &Weights<'_>,
    column: usize,
) {
    let n_in = weights.n_in;
    assert!(weights.bytes.len() == N * n_in * E::BYTES, "a tile of weights");
    let mut inputs = [&[][..]; M];
    let mut m = 0;
    while m < M {
        let (row, columns) = block.picks.input(row + m, n_in);
        inputs[m] = block.x.columns(row, columns);
        m += 1;
    }
    let mut sums = [[s.splat(0.0); N]; M];
    let (bound, mut next) = (block.rows <= BOUND, weights.bytes.as_ptr_range().end);
    let mut k = 0;
    while k + LANES <= n_in {
        if bound {
            next = ask(s, next, N * E::BYTES);
        }
        let mut w = [s.splat(0.0); N];
        for (n, w) in w.iter_mut().enumerate() {
            // SAFETY: row `n` of the weights has `n_in` elements, checked above, of which these are sixteen.
            *w = unsafe { E::read(s, weights.bytes.as_ptr().add((n * n_in + k) * E::BYTES)) };
        }
        for m in 0..M {
            // SAFETY: every input has `n_in` elements, as `Picks::input` says.
            let x = unsafe { s.read_f32(inputs[m].as_ptr().add(k).cast()) };
            for n in 0..N {
                sums[m][n] = s.fma(x, w[n], sums[m][n]);
            }
        }
        k += LANES;
    }
    if k < n_in {
        tail::<S, E, M, N>(s, &inputs, (weights, k), &mut sums);
    }
    for (m, sums) in sums.iter().enumerate() {
        let (row, first) = block.picks.output(row + m);
        let out = block.out.columns_mut(row, first + column..first + column + N);
        for (out, &sum) in out.iter_mut().zip(sums) {
            *out = s.sum(sum);
        }
    }
}

/// Asks for `each · LANES` bytes, a part of the weights that follow in memory; the address behind them.
#[inline(always)]
fn ask<S: Simd>(s: S, from: *const u8, each: usize) -> *const u8 {
    let mut at = 0;
    while at < each * LANES {
        s.prefetch(from.wrapping_add(at));
        at += LINE;
    }
    from.wrapping_add(each * LANES)
}

/// The last columns, fewer than sixteen.
#[inline(always)]
#[expect(unsafe_code, reason = "weights are read as vectors")]
fn tail<S: Simd, E: Element, const M: usize, const N: usize>(
    s: S,
    inputs: &[&[f32]; M],
    (weights, k): (&Weights<'_>, usize),
    sums: &mut [[S::V; N]; M],
) {
    for n in 0..N {
        let rest = &weights.bytes[(n * weights.n_in + k) * E::BYTES..(n + 1) * weights.n_in * E::BYTES];
        let mut padded = [0; LANES * 4];
        padded[..rest.len()].copy_from_slice(rest);
        // SAFETY: the array holds sixteen elements of the widest type.
        let w = unsafe { E::read(s, padded.as_ptr()) };
        for (input, sums) in inputs.iter().zip(sums.iter_mut()) {
            sums[n] = s.fma(s.load_part(&input[k..]), w, sums[n]);
        }
    }
}
