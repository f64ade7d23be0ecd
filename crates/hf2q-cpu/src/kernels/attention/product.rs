//! `c += a · b` for a few rows of `a`: both products of attention.

use hf2q_plan::{KvFormat, PAGE};
use hf2q_quant::kv::{GROUP, INT8_BLOCK};

use super::element::{Element, Elements, Int8, Single, with_element};
use crate::simd::{Kernel, LANES, Simd};

/// The right operand: rows `inner` of a block.
pub(super) struct Product {
    pub(super) b: Elements,
    /// Rows of `b`, and elements of `a`, that take part.
    pub(super) inner: (usize, usize),
    /// Columns of `b` that are multiplied with one row of `a`; the next as many with that row [`PAGE`] elements later.
    /// `None`: all of them.
    pub(super) block: Option<usize>,
}

/// Adds products in ascending order along the inner dimension, one chain for each element of `c`. A row of `c` is as wide
/// as one of `b`.
#[inline(always)]
pub(super) fn product<S: Simd>(s: S, a: &[&[f32]], p: &Product, c: &mut [f32]) {
    let width = p.b.row_len;
    let last = p.block.map_or(0, |block| (width.saturating_sub(1)) / block * PAGE);
    assert!(c.len() == a.len() * width && p.inner.1 <= p.b.rows, "shape of a product");
    assert!(width.is_multiple_of(LANES), "whole vectors");
    assert!(a.iter().all(|a| a.len() >= last + p.inner.1), "a product leaves its input");
    if p.inner.0 >= p.inner.1 {
        return;
    }
    s.outline(Operands { a, p, c });
}

/// The operands of [`product`], checked.
struct Operands<'a> {
    a: &'a [&'a [f32]],
    p: &'a Product,
    c: &'a mut [f32],
}

impl Kernel for Operands<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { a, p, c } = self;
        match (p.b.format, p.block) {
            // Two blocks in a group of columns.
            (KvFormat::Q8_0, Some(INT8_BLOCK)) => columns::<S, Int8, true>(s, a, p, c),
            (KvFormat::F32, Some(INT8_BLOCK)) => columns::<S, Single, true>(s, a, p, c),
            (format, _) => with_element!(format, E => columns::<S, E, false>(s, a, p, c)),
        }
    }
}

/// Cuts the columns into what registers hold.
#[inline(always)]
fn columns<S: Simd, E: Element, const SPLIT: bool>(s: S, a: &[&[f32]], p: &Product, c: &mut [f32]) {
    let mut column = 0;
    // Of eight rows half as many columns at a time: what is read serves all of them.
    while S::WIDE && a.len() == 8 && column + GROUP <= p.b.row_len {
        tile::<S, E, SPLIT, 8, 2>(s, (a, 0), (p, column, 0), c);
        tile::<S, E, SPLIT, 8, 2>(s, (a, 0), (p, column, 2), c);
        column += GROUP;
    }
    while S::WIDE && column + GROUP <= p.b.row_len {
        rows::<S, E, SPLIT, 4>(s, a, (p, column, 0), c);
        column += GROUP;
    }
    while column < p.b.row_len {
        let group = column / GROUP * GROUP;
        rows::<S, E, SPLIT, 1>(s, a, (p, group, (column - group) / LANES), c);
        column += LANES;
    }
}

/// A product, a group of its columns, and the first vector in the group.
type At<'a> = (&'a Product, usize, usize);

/// Cuts the rows into tiles.
#[inline(always)]
fn rows<S: Simd, E: Element, const SPLIT: bool, const N: usize>(
    s: S,
    a: &[&[f32]],
    at: At<'_>,
    c: &mut [f32],
) {
    let mut row = 0;
    while row + 6 <= a.len() {
        tile::<S, E, SPLIT, 6, N>(s, (a, row), at, c);
        row += 6;
    }
    if row + 4 <= a.len() {
        tile::<S, E, SPLIT, 4, N>(s, (a, row), at, c);
        row += 4;
    }
    if row + 2 <= a.len() {
        tile::<S, E, SPLIT, 2, N>(s, (a, row), at, c);
        row += 2;
    }
    if row < a.len() {
        tile::<S, E, SPLIT, 1, N>(s, (a, row), at, c);
    }
}

/// `M` rows from `row` on, `N` vectors from vector `j` of a group of columns on.
#[inline(always)]
#[expect(unsafe_code, reason = "bounds are checked once for the whole tile")]
fn tile<S: Simd, E: Element, const SPLIT: bool, const M: usize, const N: usize>(
    s: S,
    (a, row): (&[&[f32]], usize),
    (p, group, j): At<'_>,
    c: &mut [f32],
) {
    let (width, first) = (p.b.row_len, group + j * LANES);
    let mut sums = [[s.splat(0.0); N]; M];
    let mut inputs = [std::ptr::null::<f32>(); M];
    for m in 0..M {
        let block = p.block.map_or(0, |block| first / block * PAGE);
        inputs[m] = a[row + m][block..].as_ptr();
        for (n, sum) in sums[m].iter_mut().enumerate() {
            let at = (row + m) * width + first + n * LANES;
            *sum = s.load(c[at..].first_chunk().expect("a row of c is as wide as the product"));
        }
    }
    let mut k = p.inner.0;
    while k < p.inner.1 {
        let mut b = [s.splat(0.0); N];
        for (n, b) in b.iter_mut().enumerate() {
            // SAFETY: `product` has checked that rows up to `inner.1` lie within the block.
            *b = unsafe { E::read(s, p.b.start.add(k * p.b.row_bytes), group, j + n) };
        }
        for m in 0..M {
            for n in 0..N {
                let next = if SPLIT { n * LANES / INT8_BLOCK * PAGE } else { 0 };
                // SAFETY: `product` has checked that `a` has `inner.1` elements for every block of columns.
                let x = s.splat(unsafe { *inputs[m].add(k + next) });
                sums[m][n] = s.fma(x, b[n], sums[m][n]);
            }
        }
        k += 1;
    }
    for (m, sums) in sums.iter().enumerate() {
        for (n, &sum) in sums.iter().enumerate() {
            let at = (row + m) * width + first + n * LANES;
            s.store(sum, c[at..].first_chunk_mut().expect("a row of c is as wide as the product"));
        }
    }
}
