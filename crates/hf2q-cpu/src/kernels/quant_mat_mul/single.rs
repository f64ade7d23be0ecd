//! The product of one row: weights go from the layout of the file to sums in registers.

use std::marker::PhantomData;

use super::panel::{LINE, Panel};
use super::simd::{Kernel, Simd};
use super::tile::record_words;
use super::unpack::{Block, Format, Kind, Records};

/// Multiplies panels with one row.
pub(super) struct Single<'a, F> {
    /// As many panels as `sums` has vectors, whole ones.
    pub(super) weights: &'a [u8],
    /// Bytes of a row of weights.
    pub(super) row_bytes: usize,
    /// The row, as [`super::stream`] lays it out.
    pub(super) stream: &'a [u32],
    /// A float for every row of weights.
    pub(super) sums: &'a mut [u32],
    /// The format of the weights.
    pub(super) format: PhantomData<F>,
}

impl<F: Format> Kernel for Single<'_, F> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = F::BYTES;
        let panels = self.weights.chunks_exact(S::LANES * self.row_bytes);
        for (bytes, to) in panels.zip(self.sums.chunks_exact_mut(S::LANES)) {
            let panel = Panel::new(bytes, self.row_bytes);
            let next = bytes.as_ptr().wrapping_add(bytes.len());
            let zero = simd.as_floats(simd.splat(0));
            let mut sum = Sum::<S, F> { stream: self.stream, next, sum: zero, format: PhantomData };
            let mut at = 0;
            while at < self.row_bytes {
                F::unpack(simd, Block::new(panel, at), &mut sum);
                at += step;
            }
            simd.store(simd.as_words(sum.sum), to);
        }
    }
}

/// The sums of a panel so far.
struct Sum<'a, S: Simd, F> {
    /// What is left of the row.
    stream: &'a [u32],
    /// The part of the next panel to ask for. Panels lie one after another, while each is read row beside row, which no
    /// processor foresees.
    next: *const u8,
    sum: S::Floats,
    format: PhantomData<F>,
}

impl<S: Simd, F: Format> Records<S> for Sum<'_, S, F> {
    /// The operations of the tile kernel, in their order.
    #[inline(always)]
    fn put<const N: usize>(&mut self, simd: S, codes: [S::Words; 8], floats: [S::Floats; N]) {
        ask_for(simd, self.next, S::LANES * F::BYTES / F::RECORDS);
        self.next = self.next.wrapping_add(S::LANES * F::BYTES / F::RECORDS);
        let (x, rest) = self.stream.split_at(record_words::<F::Kind>(1));
        self.stream = rest;
        let (halves, is_minimum) = (F::Kind::HALVES, F::Kind::MINIMUM);
        let mut half = 0;
        while half < halves {
            let correction = simd.splat(x[9 + half]);
            let first = if is_minimum { simd.splat(0) } else { correction };
            let sum = dots::<S, F::Kind>(simd, first, (&codes, x), half);
            let step = simd.mul(floats[half], simd.as_floats(simd.splat(x[8])));
            self.sum = simd.fma(simd.to_floats(sum), step, self.sum);
            if is_minimum {
                self.sum = simd.fma(floats[halves + half], simd.as_floats(correction), self.sum);
            }
            half += 1;
        }
    }
}

/// The dot products of a half (or of the whole) added to `sum`, in two chains, for one waits for itself.
#[inline(always)]
fn dots<S: Simd, K: Kind>(
    simd: S,
    sum: S::Words,
    (codes, x): (&[S::Words; 8], &[u32]),
    half: usize,
) -> S::Words {
    let mut sums = [sum, simd.splat(0)];
    let (mut j, end) = (half * 8 / K::HALVES, (half + 1) * 8 / K::HALVES);
    while j < end {
        let (pair, x) = ([codes[j], codes[j + 1]], [x[j], x[j + 1]]);
        let sum = &mut sums[j / 2 % 2];
        *sum = if K::SIGNED { simd.dot_sealed(*sum, pair, x) } else { simd.dot(*sum, pair, x) };
        j += 2;
    }
    simd.add(sums[0], sums[1])
}

/// Asks for some neighbouring lines.
#[inline(always)]
fn ask_for<S: Simd>(simd: S, from: *const u8, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        simd.prefetch(from.wrapping_add(line));
        line += LINE;
    }
}
