//! `c += a · b` for a few rows of `a`: both products of attention.

use hf2q_plan::KvFormat;

use super::block::Elements;
use crate::simd::{Kernel, LANES, Simd};

/// The right operand: rows `inner` of a block.
pub(super) struct Product {
    pub(super) b: Elements,
    /// Elements from one row of `b` to the next.
    pub(super) stride: usize,
    /// Rows of `b`, and elements of `a`, that take part.
    pub(super) inner: (usize, usize),
    /// Columns of `b` and of a row of `c`; a multiple of [`LANES`].
    pub(super) width: usize,
}

/// Adds products in ascending order along the inner dimension, one chain for each element of `c`.
#[inline(always)]
pub(super) fn product<S: Simd>(s: S, a: &[&[f32]], p: &Product, c: &mut [f32]) {
    assert!(c.len() == a.len() * p.width && a.iter().all(|a| a.len() >= p.inner.1), "shape of a product");
    assert!(p.inner.1 * p.stride <= p.b.len && p.width <= p.stride, "a product leaves its block");
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
        match self.p.b.format {
            KvFormat::F16 => columns::<S, true>(s, self.a, self.p, self.c),
            _ => columns::<S, false>(s, self.a, self.p, self.c),
        }
    }
}

/// Cuts the columns into what registers hold.
#[inline(always)]
fn columns<S: Simd, const HALF: bool>(s: S, a: &[&[f32]], p: &Product, c: &mut [f32]) {
    let mut column = 0;
    while S::WIDE && column + 4 * LANES <= p.width {
        rows::<S, HALF, 4>(s, a, (p, column), c);
        column += 4 * LANES;
    }
    while column < p.width {
        rows::<S, HALF, 1>(s, a, (p, column), c);
        column += LANES;
    }
}

/// Cuts the rows into tiles.
#[inline(always)]
fn rows<S: Simd, const HALF: bool, const N: usize>(s: S, a: &[&[f32]], at: (&Product, usize), c: &mut [f32]) {
    let mut row = 0;
    while row + 6 <= a.len() {
        tile::<S, HALF, 6, N>(s, (a, row), at, c);
        row += 6;
    }
    if row + 4 <= a.len() {
        tile::<S, HALF, 4, N>(s, (a, row), at, c);
        row += 4;
    }
    if row + 2 <= a.len() {
        tile::<S, HALF, 2, N>(s, (a, row), at, c);
        row += 2;
    }
    if row < a.len() {
        tile::<S, HALF, 1, N>(s, (a, row), at, c);
    }
}

/// `M` rows from `row` on, `N` vectors from `column` on.
#[inline(always)]
#[expect(unsafe_code, reason = "bounds are checked once for the whole tile")]
fn tile<S: Simd, const HALF: bool, const M: usize, const N: usize>(
    s: S,
    (a, row): (&[&[f32]], usize),
    (p, column): (&Product, usize),
    c: &mut [f32],
) {
    let mut sums = [[s.splat(0.0); N]; M];
    let mut inputs = [std::ptr::null::<f32>(); M];
    for m in 0..M {
        inputs[m] = a[row + m].as_ptr();
        for (n, sum) in sums[m].iter_mut().enumerate() {
            let at = (row + m) * p.width + column + n * LANES;
            *sum = s.load(c[at..].first_chunk().expect("a row of c is as wide as the product"));
        }
    }
    let width = if HALF { 2 } else { 4 };
    let mut k = p.inner.0;
    while k < p.inner.1 {
        let mut b = [s.splat(0.0); N];
        for (n, b) in b.iter_mut().enumerate() {
            let at = (k * p.stride + column + n * LANES) * width;
            // SAFETY: `product` has checked that rows up to `inner.1`, `stride` wide, lie within the block.
            *b = unsafe {
                let from = p.b.start.add(at);
                if HALF { s.read_f16(from) } else { s.read_f32(from) }
            };
        }
        for m in 0..M {
            // SAFETY: `product` has checked that every row of `a` has `inner.1` elements.
            let x = s.splat(unsafe { *inputs[m].add(k) });
            for n in 0..N {
                sums[m][n] = s.fma(x, b[n], sums[m][n]);
            }
        }
        k += 1;
    }
    for (m, sums) in sums.iter().enumerate() {
        for (n, &sum) in sums.iter().enumerate() {
            let at = (row + m) * p.width + column + n * LANES;
            s.store(sum, c[at..].first_chunk_mut().expect("a row of c is as wide as the product"));
        }
    }
}
