//! Dot products of queries with keys whose components lie side by side.
//!
//! A query's products with one key are summed up in sixteen lanes, each along all of its components in ascending order:
//! first those that were formed, then codes times their scale. The sums of sixteen keys are exchanged and added in a fixed
//! tree. What is read of a key serves all queries of a tile.

use hf2q_plan::PAGE;
use hf2q_quant::kv::GROUP;

use super::block::{Block, Stored};
use super::element::{Element, Elements, with_element};
use super::scaled::scales_of;
use crate::simd::{Kernel, LANES, Simd};

/// Blocks of the longest vector, at least.
const MOST_BLOCKS: usize = 8;

/// Queries that are multiplied at once, at most.
const MOST: usize = 8;

/// A query: components that are formed, and all of them, of which the others are used.
pub(super) type Query<'a> = [&'a [f32]; 2];

/// Dot products with all keys of a block, `[queries][PAGE]`. Its keys are the components that are formed.
#[inline(always)]
pub(super) fn scores<S: Simd>(s: S, queries: &[Query<'_>], block: &Block, out: &mut [f32]) {
    let (keys, values) = (&block.keys.elements, &block.values);
    let width = values.elements.row_len;
    let is_fit = |q: &Query<'_>| q[0].len() == keys.row_len && q[1].len() == width;
    assert!(queries.iter().all(is_fit) && out.len() == queries.len() * PAGE, "shape of a product");
    assert!(keys.rows == PAGE && values.elements.rows == PAGE, "rows of a product");
    assert!(values.block == keys.row_len && values.block.is_multiple_of(GROUP), "blocks of a product");
    assert!(width == values.scale_count * values.block && values.scale_count <= MOST_BLOCKS, "scales");
    s.outline(Dots { queries, keys, values, out });
}

struct Dots<'a> {
    queries: &'a [Query<'a>],
    /// `[PAGE][block]`, in single precision.
    keys: &'a Elements,
    values: &'a Stored,
    out: &'a mut [f32],
}

impl Kernel for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_element!(self.values.elements.format, E => self.all::<S, E>(s));
    }
}

impl Dots<'_> {
    /// Cuts the queries into what registers hold.
    #[inline(always)]
    fn all<S: Simd, E: Element>(mut self, s: S) {
        let mut scales = [[[0.0; LANES]; PAGE / LANES]; MOST_BLOCKS];
        for (block, scales) in scales.iter_mut().enumerate().take(self.values.scale_count) {
            for (to, &v) in scales.iter_mut().zip(&scales_of(s, self.values, block)) {
                s.store(v, to);
            }
        }
        let mut query = 0;
        let count = self.queries.len();
        while S::WIDE && query + 8 <= count {
            self.some::<S, E, 8, 2>(s, query, &scales);
            query += 8;
        }
        if S::WIDE && query + 6 <= count {
            self.some::<S, E, 6, 4>(s, query, &scales);
            query += 6;
        }
        if S::WIDE && query + 4 <= count {
            self.some::<S, E, 4, 4>(s, query, &scales);
            query += 4;
        }
        while query + 2 <= count {
            self.some::<S, E, 2, 2>(s, query, &scales);
            query += 2;
        }
        if query < count {
            self.some::<S, E, 1, 2>(s, query, &scales);
        }
    }

    /// `M` queries, `P` keys at a time.
    #[inline(always)]
    fn some<S: Simd, E: Element, const M: usize, const P: usize>(
        &mut self,
        s: S,
        query: usize,
        scales: &[[[f32; LANES]; PAGE / LANES]; MOST_BLOCKS],
    ) {
        let mut sums = [[[0.0; LANES]; LANES]; MOST];
        for strip in 0..PAGE / LANES {
            let mut p = 0;
            while p < LANES {
                let found = self.tile::<S, E, M, P>(s, query, (strip, p, scales));
                for m in 0..M {
                    for i in 0..P {
                        s.store(found[m][i], &mut sums[m][p + i]);
                    }
                }
                p += P;
            }
            for m in 0..M {
                let mut rows = [s.splat(0.0); LANES];
                for (row, sums) in rows.iter_mut().zip(&sums[m]) {
                    *row = s.load(sums);
                }
                let at = (query + m) * PAGE + strip * LANES;
                let out = self.out[at..].first_chunk_mut().expect("scores are a page wide");
                s.store(tree(s, s.transpose(rows)), out);
            }
        }
    }

    /// Sums, in lanes, of `M` queries and `P` keys.
    #[inline(always)]
    #[expect(unsafe_code, reason = "blocks of the cache are pointers")]
    fn tile<S: Simd, E: Element, const M: usize, const P: usize>(
        &self,
        s: S,
        query: usize,
        (strip, p, scales): (usize, usize, &[[[f32; LANES]; PAGE / LANES]; MOST_BLOCKS]),
    ) -> [[S::V; P]; M] {
        let Self { keys, values, .. } = self;
        let position = strip * LANES + p;
        let mut formed = [std::ptr::null::<u8>(); M];
        let mut all = [std::ptr::null::<u8>(); M];
        for m in 0..M {
            let [q, whole] = self.queries[query + m];
            (formed[m], all[m]) = (q.as_ptr().cast(), whole.as_ptr().cast());
        }
        let mut sums = [[s.splat(0.0); P]; M];
        let mut at = 0;
        while at < keys.row_len * size_of::<f32>() {
            let mut x = [s.splat(0.0); P];
            for (i, x) in x.iter_mut().enumerate() {
                // SAFETY: keys have PAGE rows of `row_len` elements.
                *x = unsafe { s.read_f32(keys.start.add((position + i) * keys.row_bytes + at)) };
            }
            for m in 0..M {
                // SAFETY: a query has as many.
                let q = unsafe { s.read_f32(formed[m].add(at)) };
                for i in 0..P {
                    sums[m][i] = s.fma(q, x[i], sums[m][i]);
                }
            }
            at += LANES * size_of::<f32>();
        }
        let Elements { start, row_len, row_bytes, .. } = values.elements;
        let mut group = keys.row_len;
        while group < row_len {
            let scales = &scales[group / values.block][strip];
            for j in 0..GROUP / LANES {
                let mut x = [s.splat(0.0); P];
                for (i, x) in x.iter_mut().enumerate() {
                    // SAFETY: values have PAGE rows of `row_len` elements.
                    let levels = unsafe { E::read(s, start.add((position + i) * row_bytes), group, j) };
                    *x = s.mul(levels, s.splat(scales[p + i]));
                }
                let at = (group + j * LANES) * size_of::<f32>();
                for m in 0..M {
                    // SAFETY: a query has `row_len` elements.
                    let q = unsafe { s.read_f32(all[m].add(at)) };
                    for i in 0..P {
                        sums[m][i] = s.fma(q, x[i], sums[m][i]);
                    }
                }
            }
            group += GROUP;
        }
        sums
    }
}

/// Lane `i` plus lane `i + 8`, then 4, 2 and 1 apart, of vectors that have become lanes.
#[inline(always)]
fn tree<S: Simd>(s: S, rows: [S::V; LANES]) -> S::V {
    halve::<S, 1>(s, halve::<S, 2>(s, halve::<S, 4>(s, halve::<S, 8>(s, rows))))[0]
}

#[inline(always)]
fn halve<S: Simd, const N: usize>(s: S, mut rows: [S::V; LANES]) -> [S::V; LANES] {
    for i in 0..N {
        rows[i] = s.add(rows[i], rows[i + N]);
    }
    rows
}
