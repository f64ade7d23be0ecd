//! Keys of values: turned back into the basis of the queries where codes are rotated, multiplied by the weights of the
//! keys' norm and turned to their positions.

use std::sync::Arc;

use hf2q_plan::{KvFormat, PAGE, Pairing};

use super::block::{Block, Stored};
use super::element::{Element, Elements, with_element};
use super::scaled::scales_at;
use crate::kernels::angles::Pages;
use crate::simd::{Kernel, LANES, Simd};

/// How the keys of a cache are made.
pub(crate) struct Former {
    /// For each component what it is multiplied by: the weight of the keys' norm, and where codes are rotated what undoes
    /// that after the butterflies.
    pub(crate) factors: Vec<f32>,
    pub(crate) pairing: Pairing,
    /// Components between the two of a pair, if pairs are halves.
    pub(crate) half: usize,
    pub(crate) angles: Arc<Pages>,
}

/// Memory of one thread.
#[derive(Default)]
pub(super) struct Buffers {
    /// `[head_dim][PAGE]`.
    keys: Vec<f32>,
    /// `[padded head_dim][LANES]`: some of the positions.
    strip: Vec<[f32; LANES]>,
    /// `[pairs][PAGE]`: cosines and sines.
    angles: [Vec<f32>; 2],
}

/// The keys of a block's values.
#[inline(always)]
pub(super) fn keys<S: Simd>(s: S, former: &Former, block: &Block, buffers: &mut Buffers) -> Stored {
    let (head_dim, angles) = (former.factors.len(), former.angles.pairs() * PAGE);
    buffers.keys.resize(head_dim * PAGE, 0.0);
    buffers.strip.resize(block.values.elements.row_len, [0.0; LANES]);
    buffers.angles.iter_mut().for_each(|a| a.resize(angles, 0.0));
    s.outline(Form { former, block, buffers });
    let elements = Elements {
        start: buffers.keys.as_ptr().cast(),
        format: KvFormat::F32,
        rows: head_dim,
        row_len: PAGE,
        row_bytes: PAGE * size_of::<f32>(),
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
    fn run<S: Simd>(mut self, s: S) {
        let [cos, sin] = &mut self.buffers.angles;
        self.former.angles.page(self.block.index, cos, sin);
        let values = &self.block.values;
        let rotated = values.elements.format.turbo().is_some();
        let mut first = 0;
        while first < PAGE {
            with_element!(values.elements.format, E => read::<S, E>(s, values, first, &mut self.buffers.strip));
            if rotated {
                for block in self.buffers.strip.chunks_exact_mut(values.block) {
                    turn_back(s, block);
                }
            }
            self.multiply(s);
            self.turn(s, first);
            self.write(first);
            first += LANES;
        }
    }
}

impl Form<'_> {
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S) {
        for (x, &factor) in self.buffers.strip.iter_mut().zip(&self.former.factors) {
            let product = s.mul(s.load(x), s.splat(factor));
            s.store(product, x);
        }
    }

    /// Turns pairs by the angles of positions from `first` on.
    #[inline(always)]
    fn turn<S: Simd>(&mut self, s: S, first: usize) {
        let Buffers { strip, angles: [cos, sin], .. } = &mut *self.buffers;
        let (cos, _) = cos.as_chunks::<LANES>();
        let (sin, _) = sin.as_chunks::<LANES>();
        for pair in 0..self.former.angles.pairs() {
            let (i, j) = match self.former.pairing {
                Pairing::Halves => (pair, pair + self.former.half),
                Pairing::Adjacent => (2 * pair, 2 * pair + 1),
            };
            let at = pair * (PAGE / LANES) + first / LANES;
            let (cos, sin) = (s.load(&cos[at]), s.load(&sin[at]));
            let (a, b) = (s.load(&strip[i]), s.load(&strip[j]));
            // As rotations of rows: two products, rounded, and their sum.
            s.store(s.sub(s.mul(a, cos), s.mul(b, sin)), &mut strip[i]);
            s.store(s.add(s.mul(a, sin), s.mul(b, cos)), &mut strip[j]);
        }
    }

    /// Puts the positions into their columns.
    #[inline(always)]
    fn write(&mut self, first: usize) {
        let (keys, _) = self.buffers.keys.as_chunks_mut::<LANES>();
        for (row, strip) in keys.chunks_exact_mut(PAGE / LANES).zip(&self.buffers.strip) {
            row[first / LANES] = *strip;
        }
    }
}

/// Reads the values of sixteen positions from `first` on: row `d` of `strip` gets component `d` of all of them, decoded but
/// not turned back.
#[inline(always)]
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
fn read<S: Simd, E: Element>(s: S, values: &Stored, first: usize, strip: &mut [[f32; LANES]]) {
    let Elements { start, rows, row_len, row_bytes, .. } = values.elements;
    assert!(first + LANES <= rows && strip.len() == row_len, "sixteen positions of a block");
    let (columns, _) = strip.as_chunks_mut::<LANES>();
    let mut i = 0;
    while i < columns.len() {
        let mut positions = [s.splat(0.0); LANES];
        for (p, position) in positions.iter_mut().enumerate() {
            // SAFETY: `elements` describes readable rows of `row_len` elements.
            *position = unsafe { E::read(s, start.add((first + p) * row_bytes), i / 4 * 4 * LANES, i % 4) };
        }
        let components = s.transpose(positions);
        if values.scale_count > 0 {
            let scales = scales_at(s, values, i * LANES / values.block, first);
            for (out, component) in columns[i].iter_mut().zip(components) {
                s.store(s.mul(component, scales), out);
            }
        } else {
            for (out, component) in columns[i].iter_mut().zip(components) {
                s.store(component, out);
            }
        }
        i += 1;
    }
}

/// The butterflies of [`hf2q_quant::kv::rotate_back`] on sixteen blocks of 64, 128 or 256 components at once.
#[inline(always)]
fn turn_back<S: Simd>(s: S, block: &mut [[f32; LANES]]) {
    let mut first = 0;
    while first < block.len() {
        butterflies::<S, 16>(s, block, first, 1);
        first += 16;
    }
    let mut first = 0;
    while first < 16 {
        match block.len() {
            64 => butterflies::<S, 4>(s, block, first, 16),
            128 => butterflies::<S, 8>(s, block, first, 16),
            _ => butterflies::<S, 16>(s, block, first, 16),
        }
        first += 1;
    }
}

/// The transform of `N` components that lie `distance` apart.
#[inline(always)]
fn butterflies<S: Simd, const N: usize>(s: S, block: &mut [[f32; LANES]], first: usize, distance: usize) {
    let mut x = [s.splat(0.0); N];
    for (i, x) in x.iter_mut().enumerate() {
        *x = s.load(&block[first + i * distance]);
    }
    let mut half = 1;
    while half < N {
        for i in 0..N {
            if i & half == 0 {
                (x[i], x[i + half]) = (s.add(x[i], x[i + half]), s.sub(x[i], x[i + half]));
            }
        }
        half *= 2;
    }
    for (i, &x) in x.iter().enumerate() {
        s.store(x, &mut block[first + i * distance]);
    }
}
