//! Keys of values that are cut: see [`Cut`]. Only the components that turn are formed; the others of a key are its codes,
//! by which queries are multiplied that have the weights of the keys' norm and are rotated once.
//!
//! Components of a position lie side by side here, as in values. Formed components are turned by the angles of the place
//! in the page alone: those of the page turn queries back.

use std::sync::Arc;

use hf2q_plan::{Cut, KvFormat, PAGE};
use hf2q_quant::kv::{back_factors, rotate};

use super::block::{Block, Stored};
use super::element::{Element, Elements, with_element};
use super::form::butterflies;
use super::scaled::scales_of;
use crate::kernels::angles::Pages;
use crate::simd::{Kernel, LANES, Simd};

/// Pairs of the largest block.
const MOST_PAIRS: usize = 128;

/// How the keys of a cache are made whose vectors are cut.
pub(crate) struct Parts {
    cut: Cut,
    /// For each component that turns what it is multiplied by after the butterflies: the weight of the keys' norm, and what
    /// undoes the rotation.
    factors: Vec<f32>,
    /// Weights of the other components, in the order in which they are stored.
    weights: Vec<f32>,
    /// `[PAGE][pairs]`: cosines and sines of the places in a page.
    offsets: [Vec<f32>; 2],
    angles: Arc<Pages>,
}

impl Parts {
    /// `weights` has one for each component.
    pub(crate) fn new(cut: Cut, weights: &[f32], angles: Arc<Pages>) -> Self {
        let mut factors = vec![0.0; weights.len()];
        cut.sort(weights, &mut factors);
        let weights = factors.split_off(cut.block);
        back_factors(&mut factors);
        let offset = |i| (0..PAGE).flat_map(move |at| (0..cut.block / 2).map(move |pair| (i, at, pair)));
        let offsets = [0, 1].map(|i| offset(i).map(|(i, at, pair)| angles.offset(pair, at)[i]).collect());
        Self { cut, factors, weights, offsets, angles }
    }

    /// Components that turn.
    pub(super) fn block(&self) -> usize {
        self.cut.block
    }

    /// Appends a query in the order in which components are stored; those that do not turn in the basis of their codes.
    #[inline(always)]
    pub(super) fn prepare(&self, query: &[f32], to: &mut Vec<f32>) {
        let first = to.len();
        to.resize(first + query.len(), 0.0);
        self.cut.sort(query, &mut to[first..]);
        let rest = &mut to[first + self.cut.block..];
        for (x, weight) in rest.iter_mut().zip(&self.weights) {
            *x *= weight;
        }
        rest.chunks_exact_mut(self.cut.block).for_each(rotate);
    }

    /// The components that turn of prepared queries, turned back by the angles of a page.
    #[inline(always)]
    pub(super) fn turn_back<S: Simd>(&self, s: S, page: usize, queries: &[&[f32]], to: &mut [f32]) {
        let pairs = self.cut.block / 2;
        let (mut cos, mut sin) = ([0.0; MOST_PAIRS], [0.0; MOST_PAIRS]);
        for (pair, (cos, sin)) in cos.iter_mut().zip(&mut sin).enumerate().take(pairs) {
            [*cos, *sin] = self.angles.first(page, pair);
        }
        let (cos, sin) = (cos.as_chunks::<LANES>().0, sin.as_chunks::<LANES>().0);
        for (query, to) in queries.iter().zip(to.chunks_exact_mut(self.cut.block)) {
            let (a, b) = query[..self.cut.block].split_at(pairs);
            let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
            let (to_a, to_b) = to.split_at_mut(pairs);
            let (to_a, to_b) = (to_a.as_chunks_mut::<LANES>().0, to_b.as_chunks_mut::<LANES>().0);
            for i in 0..pairs / LANES {
                let (a, b, cos, sin) = (s.load(&a[i]), s.load(&b[i]), s.load(&cos[i]), s.load(&sin[i]));
                s.store(s.fma(b, sin, s.mul(a, cos)), &mut to_a[i]);
                s.store(s.sub(s.mul(b, cos), s.mul(a, sin)), &mut to_b[i]);
            }
        }
    }
}

/// The components that turn of the keys of a block's values: `[PAGE][block]`.
#[inline(always)]
pub(super) fn keys<S: Simd>(s: S, parts: &Parts, block: &Block, keys: &mut Vec<f32>) -> Stored {
    let row_len = parts.cut.block;
    keys.resize(PAGE * row_len, 0.0);
    s.outline(Form { parts, values: &block.values, keys });
    let row_bytes = row_len * size_of::<f32>();
    let elements =
        Elements { start: keys.as_ptr().cast(), format: KvFormat::F32, rows: PAGE, row_len, row_bytes };
    Stored { elements, scale_count: 0, ..block.values }
}

struct Form<'a> {
    parts: &'a Parts,
    values: &'a Stored,
    keys: &'a mut [f32],
}

impl Kernel for Form<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_element!(self.values.elements.format, E => match self.parts.cut.block {
            64 => self.all::<S, E, 4>(s),
            128 => self.all::<S, E, 8>(s),
            _ => self.all::<S, E, 16>(s),
        });
    }
}

impl Form<'_> {
    /// Blocks of `16 N` components.
    #[inline(always)]
    #[expect(unsafe_code, reason = "blocks of the cache are pointers")]
    fn all<S: Simd, E: Element, const N: usize>(self, s: S) {
        let Self { parts, values, keys } = self;
        let Elements { start, rows, row_len, row_bytes, .. } = values.elements;
        let block = N * LANES;
        let shape = (rows, parts.factors.len(), keys.len(), parts.offsets.each_ref().map(Vec::len));
        let half = PAGE * block / 2;
        assert!(shape == (PAGE, block, PAGE * block, [half; 2]) && block <= row_len, "shape of a block");
        let mut scales = [[0.0; LANES]; PAGE / LANES];
        for (to, &v) in scales.iter_mut().zip(&scales_of(s, values, 0)) {
            s.store(v, to);
        }
        let scales = scales.as_flattened();
        let factors = parts.factors.as_chunks::<LANES>().0;
        let offsets = parts.offsets.each_ref().map(|o| o.as_chunks::<LANES>().0.chunks_exact(N / 2));
        let [cos, sin] = offsets;
        let rows = keys.as_chunks_mut::<LANES>().0.chunks_exact_mut(N);
        for (position, ((key, cos), sin)) in rows.zip(cos).zip(sin).enumerate() {
            let mut x = [s.splat(0.0); N];
            for (i, x) in x.iter_mut().enumerate() {
                // SAFETY: `elements` describes readable rows of `row_len` elements.
                *x = unsafe { E::read(s, start.add(position * row_bytes), i / 4 * 4 * LANES, i % 4) };
            }
            let mut x = butterflies(s, x);
            let scale = s.splat(scales[position]);
            for i in 0..N {
                let v = within::<S, 8>(s, within::<S, 4>(s, within::<S, 2>(s, within::<S, 1>(s, x[i]))));
                x[i] = s.mul(s.mul(v, scale), s.load(&factors[i]));
            }
            for i in 0..N / 2 {
                let (a, b, cos, sin) = (x[i], x[i + N / 2], s.load(&cos[i]), s.load(&sin[i]));
                s.store(s.sub(s.mul(a, cos), s.mul(b, sin)), &mut key[i]);
                s.store(s.fma(a, sin, s.mul(b, cos)), &mut key[i + N / 2]);
            }
        }
    }
}

/// Sums and differences of lanes `DISTANCE` apart.
#[inline(always)]
fn within<S: Simd, const DISTANCE: usize>(s: S, v: S::V) -> S::V {
    const fn signs(distance: usize) -> [f32; LANES] {
        let mut out = [1.0; LANES];
        let mut i = 0;
        while i < LANES {
            if i & distance != 0 {
                out[i] = -1.0;
            }
            i += 1;
        }
        out
    }
    let signs = const { signs(DISTANCE) };
    s.fma(v, s.load(&signs), s.exchange::<DISTANCE>(v))
}
