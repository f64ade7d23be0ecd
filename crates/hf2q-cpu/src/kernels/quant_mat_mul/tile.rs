//! The product of unpacked weights and activations, in register tiles of a few activation rows.

use std::marker::PhantomData;

use super::simd::{Kernel, Simd};
use super::unpack::Kind;

/// Adds the product of one range of k to the sums of every activation row.
pub(super) struct Tiles<'a, K> {
    /// Unpacked weights of the range.
    pub(super) records: &'a [u32],
    /// Activations of the whole k, as [`super::stream`] lays them out.
    pub(super) stream: &'a [u32],
    /// The first record of the range and the number of records of the whole k.
    pub(super) first: usize,
    /// Records of the whole k.
    pub(super) total: usize,
    /// One vector of floats for every activation row, in the order of the tiles.
    pub(super) sums: &'a mut [u32],
    /// How codes and scales combine.
    pub(super) kind: PhantomData<K>,
}

impl<K: Kind> Kernel for Tiles<'_, K> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (mut stream, mut sums) = (self.stream, self.sums);
        while !sums.is_empty() {
            let rows = tile_rows::<S>(sums.len() / S::LANES);
            let record = record_words::<K>(rows);
            let (tile, rest) = stream.split_at(record * self.total);
            let (own, others) = sums.split_at_mut(rows * S::LANES);
            let x = &tile[record * self.first..];
            match rows {
                8 => tile_of::<S, K, 8>(simd, self.records, x, own),
                4 => tile_of::<S, K, 4>(simd, self.records, x, own),
                2 => tile_of::<S, K, 2>(simd, self.records, x, own),
                _ => tile_of::<S, K, 1>(simd, self.records, x, own),
            }
            (stream, sums) = (rest, others);
        }
    }
}

/// Rows of the next tile when so many are left: the largest power of two that fits.
#[inline(always)]
pub(super) fn tile_rows<S: Simd>(left: usize) -> usize {
    if left >= S::TILE { S::TILE } else { 1 << left.ilog2() }
}

/// Words of the activations of 32 k in a tile of so many rows: codes, scales, corrections.
#[inline(always)]
pub(super) fn record_words<K: Kind>(rows: usize) -> usize {
    rows * (9 + K::HALVES)
}

#[inline(always)]
fn tile_of<S: Simd, K: Kind, const R: usize>(simd: S, records: &[u32], x: &[u32], sums: &mut [u32]) {
    let mut acc: [S::Floats; R] = std::array::from_fn(|r| simd.as_floats(simd.load(&sums[r * S::LANES..])));
    let weights = records.chunks_exact(S::LANES * (8 + K::FLOATS));
    for (w, x) in weights.zip(x.chunks_exact(record_words::<K>(R))) {
        for half in 0..K::HALVES {
            accumulate::<S, K, R>(simd, w, (x, half), &mut acc);
        }
    }
    for (r, acc) in acc.into_iter().enumerate() {
        simd.store(simd.as_words(acc), &mut sums[r * S::LANES..]);
    }
}

/// One scale's worth of a record: an exact integer sum, then one fused step (two with minimums).
#[inline(always)]
fn accumulate<S: Simd, K: Kind, const R: usize>(
    simd: S,
    w: &[u32],
    (x, half): (&[u32], usize),
    acc: &mut [S::Floats; R],
) {
    let steps = 8 / K::HALVES;
    let correction = |r: usize| x[R * (9 + half) + r];
    let mut sum: [S::Words; R] =
        std::array::from_fn(|r| simd.splat(if K::MINIMUM { 0 } else { correction(r) }));
    for j in (half * steps..(half + 1) * steps).step_by(2) {
        let codes = [simd.load(&w[j * S::LANES..]), simd.load(&w[(j + 1) * S::LANES..])];
        for r in 0..R {
            let x = [x[8 * r + j], x[8 * r + j + 1]];
            sum[r] = if K::SIGNED { simd.dot_sealed(sum[r], codes, x) } else { simd.dot(sum[r], codes, x) };
        }
    }
    let scale = simd.as_floats(simd.load(&w[(8 + half) * S::LANES..]));
    for (r, acc) in acc.iter_mut().enumerate() {
        let step = simd.mul(scale, simd.as_floats(simd.splat(x[8 * R + r])));
        *acc = simd.fma(simd.to_floats(sum[r]), step, *acc);
    }
    if K::MINIMUM {
        let minimum = simd.as_floats(simd.load(&w[(8 + K::HALVES + half) * S::LANES..]));
        for (r, acc) in acc.iter_mut().enumerate() {
            *acc = simd.fma(minimum, simd.as_floats(simd.splat(correction(r))), *acc);
        }
    }
}
