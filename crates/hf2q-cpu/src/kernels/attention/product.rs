//! `c += a · b` for rows of `a`: both products of attention.

use hf2q_plan::{KvFormat, PAGE};
use hf2q_quant::kv::{GROUP, INT8_BLOCK};

use super::element::{Element, Elements, Int8, Single, with_element};
use crate::simd::{Kernel, LANES, Simd};

/// Rows that lie `stride` values apart.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a> {
    pub(super) values: &'a [f32],
    pub(super) stride: usize,
}

/// Which part of `b` is multiplied, and how.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) b: Elements,
    /// Rows of `b`, and elements of a row of `a`, that take part.
    pub(super) inner: (usize, usize),
    /// Columns of `b` and of `c` that take part: whole vectors.
    pub(super) columns: (usize, usize),
    /// Columns of `b` that are multiplied with one row of `a`; the next as many with that row [`PAGE`] elements later.
    /// `None`: all of them.
    pub(super) block: Option<usize>,
    /// Whether `c` counts as zeros.
    pub(super) anew: bool,
    /// What will be read next and lies like `b`: it is brought closer. May be any address.
    pub(super) next: *const u8,
}

/// Bytes that the processor fetches together.
pub(super) const CACHE_LINE: usize = 64;

impl Product {
    /// All of `b`.
    pub(super) fn whole(b: Elements, next: Option<*const u8>) -> Self {
        let (inner, columns) = ((0, b.rows), (0, b.row_len));
        Self { b, inner, columns, block: None, anew: false, next: next.unwrap_or(b.start) }
    }
}

/// Adds products in ascending order along the inner dimension, one chain for each element of `c`, for `rows` rows.
#[inline(always)]
pub(super) fn product<S: Simd>(
    s: S,
    rows: usize,
    a: Strided<'_>,
    p: &Product,
    (c, c_stride): (&mut [f32], usize),
) {
    if p.inner.0 >= p.inner.1 || p.columns.0 >= p.columns.1 || rows == 0 {
        return;
    }
    let last = p.block.map_or(0, |block| (p.columns.1 - 1) / block * PAGE);
    assert!(p.inner.1 <= p.b.rows && p.columns.1 <= p.b.row_len, "a product leaves its right operand");
    assert!(c.len() >= (rows - 1) * c_stride + p.columns.1, "a product leaves its result");
    assert!(p.columns.0.is_multiple_of(LANES) && p.columns.1.is_multiple_of(LANES), "whole vectors");
    assert!(a.values.len() >= (rows - 1) * a.stride + last + p.inner.1, "a product leaves its input");
    s.outline(Operands { rows, a, p, c, c_stride });
}

/// The operands of [`product`], checked.
struct Operands<'a> {
    rows: usize,
    a: Strided<'a>,
    p: &'a Product,
    c: &'a mut [f32],
    c_stride: usize,
}

impl Kernel for Operands<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.p.b.format, self.p.block) {
            // Two blocks in a group of columns.
            (KvFormat::Q8_0, Some(INT8_BLOCK)) => self.columns::<S, Int8, true>(s),
            (KvFormat::F32, Some(INT8_BLOCK)) => self.columns::<S, Single, true>(s),
            (format, _) => with_element!(format, E => self.columns::<S, E, false>(s)),
        }
    }
}

impl Operands<'_> {
    /// Cuts the columns into what registers hold.
    #[inline(always)]
    fn columns<S: Simd, E: Element, const SPLIT: bool>(mut self, s: S) {
        let (mut column, end) = self.p.columns;
        while column < end {
            let group = column / GROUP * GROUP;
            let j = (column - group) / LANES;
            let vectors = ((end - column) / LANES).min(GROUP / LANES - j);
            if S::WIDE && vectors == 4 && self.rows == 8 {
                // Half as many columns at a time: what is read serves all rows.
                self.tile::<S, E, SPLIT, 8, 2>(s, 0, At { group, j: 0 });
                self.tile::<S, E, SPLIT, 8, 2>(s, 0, At { group, j: 2 });
                column += GROUP;
            } else if S::WIDE && vectors == 4 {
                // Codes are unpacked by shifts that the compiler knows.
                self.rows::<S, E, SPLIT, 4>(s, At { group, j: 0 });
                column += GROUP;
            } else {
                self.rows::<S, E, SPLIT, 1>(s, At { group, j });
                column += LANES;
            }
        }
    }

    /// Cuts the rows into tiles.
    #[inline(always)]
    fn rows<S: Simd, E: Element, const SPLIT: bool, const N: usize>(&mut self, s: S, at: At) {
        let mut row = 0;
        while row + 6 <= self.rows {
            self.tile::<S, E, SPLIT, 6, N>(s, row, at);
            row += 6;
        }
        if row + 4 <= self.rows {
            self.tile::<S, E, SPLIT, 4, N>(s, row, at);
            row += 4;
        }
        match self.rows - row {
            3 => self.tile::<S, E, SPLIT, 3, N>(s, row, at),
            2 => self.tile::<S, E, SPLIT, 2, N>(s, row, at),
            1 => self.tile::<S, E, SPLIT, 1, N>(s, row, at),
            _ => {}
        }
    }

    /// `M` rows from `row` on, `N` vectors.
    #[inline(always)]
    #[expect(unsafe_code, reason = "bounds are checked once for all tiles")]
    fn tile<S: Simd, E: Element, const SPLIT: bool, const M: usize, const N: usize>(
        &mut self,
        s: S,
        row: usize,
        At { group, j }: At,
    ) {
        let (p, first) = (*self.p, group + j * LANES);
        let mut sums = [[s.splat(0.0); N]; M];
        let mut inputs = [std::ptr::null::<f32>(); M];
        let block = p.block.map_or(0, |block| first / block * PAGE);
        for m in 0..M {
            inputs[m] = self.a.values[(row + m) * self.a.stride + block..].as_ptr();
            if !p.anew {
                let (c, _) = self.c[(row + m) * self.c_stride + first..].as_chunks::<LANES>();
                let c: &[_; N] = c.first_chunk().expect("the columns of a row of c");
                for n in 0..N {
                    sums[m][n] = s.load(&c[n]);
                }
            }
        }
        let mut k = p.inner.0;
        while k < p.inner.1 {
            let at = k * p.b.row_bytes;
            let mut ahead = 0;
            while ahead < N * LANES * E::AHEAD / 8 {
                s.prefetch(p.next.wrapping_add(at + E::offset(group, j) + ahead));
                ahead += CACHE_LINE;
            }
            let mut b = [s.splat(0.0); N];
            for (n, b) in b.iter_mut().enumerate() {
                // SAFETY: `product` has checked that rows up to `inner.1` and the columns lie within the block.
                *b = unsafe { E::read(s, p.b.start.add(at), group, j + n) };
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
            let (c, _) = self.c[(row + m) * self.c_stride + first..].as_chunks_mut::<LANES>();
            let c: &mut [_; N] = c.first_chunk_mut().expect("the columns of a row of c");
            for n in 0..N {
                s.store(sums[n], &mut c[n]);
            }
        }
    }
}

/// The first vector of a tile: which of a group of columns.
#[derive(Clone, Copy)]
struct At {
    group: usize,
    j: usize,
}
