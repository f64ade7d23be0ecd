//! Keys of values: turned back into the basis of the queries where codes are rotated, multiplied by the weights of the
//! keys' norm and turned to their positions.
//!
//! Sixteen components of sixteen positions are read, exchanged and stored at a time, so that a vector holds one component
//! of sixteen positions from then on.

use std::sync::Arc;

use hf2q_plan::{KvFormat, PAGE, Pairing};

use super::block::{Block, Stored};
use super::element::{Element, Elements, with_element};
use super::scaled::scales_at;
use crate::kernels::angles::Pages;
use crate::simd::{Kernel, LANES, Simd};

/// Vectors from one row of keys to the next. One more than a row has: rows at distances that are powers of two would
/// otherwise share a few sets of the processor's cache.
const STRIDE: usize = PAGE / LANES + 1;

/// How the keys of a cache are made.
pub(crate) struct Former {
    head_dim: usize,
    /// For each component what it is multiplied by: the weight of the keys' norm, and where codes are rotated what undoes
    /// that after the butterflies. Zeros up to whole vectors.
    factors: Vec<f32>,
    pairing: Pairing,
    /// Components between the two of a pair, if pairs are halves.
    half: usize,
    angles: Arc<Pages>,
}

impl Former {
    /// `factors` has one for each component.
    pub(crate) fn new(mut factors: Vec<f32>, (pairing, half): (Pairing, usize), angles: Arc<Pages>) -> Self {
        let head_dim = factors.len();
        factors.resize(head_dim.next_multiple_of(LANES), 0.0);
        Self { head_dim, factors, pairing, half, angles }
    }

    /// Components of a key.
    pub(super) fn head_dim(&self) -> usize {
        self.head_dim
    }
}

/// Memory of one thread.
#[derive(Default)]
pub(super) struct Buffers {
    /// `[padded head_dim][STRIDE]`.
    keys: Vec<[f32; LANES]>,
    /// `[pairs][PAGE]`: cosines and sines.
    angles: [Vec<f32>; 2],
}

/// The keys of a block's values.
#[inline(always)]
pub(super) fn keys<S: Simd>(s: S, former: &Former, block: &Block, buffers: &mut Buffers) -> Stored {
    let angles = former.angles.pairs() * PAGE;
    buffers.keys.resize(former.factors.len() * STRIDE, [0.0; LANES]);
    buffers.angles.iter_mut().for_each(|a| a.resize(angles, 0.0));
    s.outline(Form { former, block, buffers });
    let elements = Elements {
        start: buffers.keys.as_ptr().cast(),
        format: KvFormat::F32,
        rows: former.head_dim,
        row_len: PAGE,
        row_bytes: STRIDE * LANES * size_of::<f32>(),
    };
    Stored { elements, scale_count: 0, ..block.values }
}

struct Form<'a> {
    former: &'a Former,
    block: &'a Block,
    buffers: &'a mut Buffers,
}

impl Kernel for Form<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { former, block, buffers } = self;
        let Buffers { keys, angles: [cos, sin] } = buffers;
        let (values, factors) = (&block.values, former.factors.as_chunks::<LANES>().0);
        let turbo = values.elements.format.turbo().is_some();
        with_element!(values.elements.format, E => read::<S, E>(s, values, (factors, turbo), keys));
        if turbo {
            let blocks = keys.chunks_exact_mut(values.block * STRIDE);
            for (keys, factors) in blocks.zip(former.factors.chunks_exact(values.block)) {
                match values.block {
                    64 => far::<S, 4>(s, factors, keys),
                    128 => far::<S, 8>(s, factors, keys),
                    _ => far::<S, 16>(s, factors, keys),
                }
            }
        }
        former.angles.page(block.index, cos, sin);
        turn(s, former, (cos, sin), keys);
    }
}

/// Reads the values of a block of positions, decoded: `turbo` codes with the butterflies of up to sixteen components,
/// others multiplied by their factors.
#[inline(always)]
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
fn read<S: Simd, E: Element>(
    s: S,
    values: &Stored,
    (factors, turbo): (&[[f32; LANES]], bool),
    keys: &mut [[f32; LANES]],
) {
    let Elements { start, rows, row_len, row_bytes, .. } = values.elements;
    assert!(rows == PAGE && row_len == factors.len() * LANES, "the shape of a block of values");
    for (i, keys) in keys.chunks_exact_mut(LANES * STRIDE).enumerate() {
        for strip in 0..PAGE / LANES {
            let mut x = [s.splat(0.0); LANES];
            for (p, x) in x.iter_mut().enumerate() {
                let row = (strip * LANES + p) * row_bytes;
                // SAFETY: `elements` describes readable rows of `row_len` elements.
                *x = unsafe { E::read(s, start.add(row), i / 4 * 4 * LANES, i % 4) };
            }
            let mut x = s.transpose(x);
            if values.scale_count > 0 {
                let scales = scales_at(s, values, i * LANES / values.block, strip * LANES);
                for x in &mut x {
                    *x = s.mul(*x, scales);
                }
            }
            if turbo {
                x = butterflies(s, x);
            } else {
                for (x, &factor) in x.iter_mut().zip(&factors[i]) {
                    *x = s.mul(*x, s.splat(factor));
                }
            }
            for (row, &x) in keys.chunks_exact_mut(STRIDE).zip(&x) {
                s.store(x, &mut row[strip]);
            }
        }
    }
}

/// The butterflies of `16 N` components that lie sixteen and more apart, and their factors: see
/// [`hf2q_quant::kv::back_factors`].
#[inline(always)]
fn far<S: Simd, const N: usize>(s: S, factors: &[f32], keys: &mut [[f32; LANES]]) {
    assert!(factors.len() == N * LANES && keys.len() == N * LANES * STRIDE, "a block of {N} times sixteen");
    for first in 0..LANES {
        for strip in 0..PAGE / LANES {
            let mut x = [s.splat(0.0); N];
            for (i, x) in x.iter_mut().enumerate() {
                *x = s.load(&keys[(first + i * LANES) * STRIDE + strip]);
            }
            let x = butterflies(s, x);
            for (i, &x) in x.iter().enumerate() {
                let row = first + i * LANES;
                s.store(s.mul(x, s.splat(factors[row])), &mut keys[row * STRIDE + strip]);
            }
        }
    }
}

/// The transform of `N` components, at most sixteen.
#[inline(always)]
pub(super) fn butterflies<S: Simd, const N: usize>(s: S, x: [S::V; N]) -> [S::V; N] {
    let x = stage::<S, N, 1>(s, x);
    let x = stage::<S, N, 2>(s, x);
    let x = stage::<S, N, 4>(s, x);
    stage::<S, N, 8>(s, x)
}

/// Sums and differences of components that lie `DISTANCE` apart. Loops of known length, which the compiler unrolls.
#[inline(always)]
fn stage<S: Simd, const N: usize, const DISTANCE: usize>(s: S, mut x: [S::V; N]) -> [S::V; N] {
    if DISTANCE < N {
        for i in 0..N {
            if i & DISTANCE == 0 {
                (x[i], x[i + DISTANCE]) = (s.add(x[i], x[i + DISTANCE]), s.sub(x[i], x[i + DISTANCE]));
            }
        }
    }
    x
}

/// Turns pairs by the angles of their positions.
#[inline(always)]
fn turn<S: Simd>(s: S, former: &Former, (cos, sin): (&[f32], &[f32]), keys: &mut [[f32; LANES]]) {
    let ((cos, _), (sin, _)) = (cos.as_chunks::<LANES>(), sin.as_chunks::<LANES>());
    for (at, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        let (pair, strip) = (at / (PAGE / LANES), at % (PAGE / LANES));
        let (i, j) = match former.pairing {
            Pairing::Halves => (pair, pair + former.half),
            Pairing::Adjacent => (2 * pair, 2 * pair + 1),
        };
        let (i, j) = (i * STRIDE + strip, j * STRIDE + strip);
        let (cos, sin) = (s.load(cos), s.load(sin));
        let (a, b) = (s.load(&keys[i]), s.load(&keys[j]));
        // As rotations of rows: two products, rounded, and their sum.
        s.store(s.sub(s.mul(a, cos), s.mul(b, sin)), &mut keys[i]);
        s.store(s.add(s.mul(a, sin), s.mul(b, cos)), &mut keys[j]);
    }
}
