//! Scales of stored vectors: they multiply sums over a block of components, not the components.

use hf2q_plan::PAGE;

use super::block::Stored;
use crate::cache::SCALE_BYTES;
use crate::simd::{LANES, Simd};

/// Adds a block of components to scores `[queries][PAGE]`: its sums times its scales. The first block finds none before it.
#[inline(always)]
pub(super) fn add<S: Simd>(s: S, partial: &[f32], (keys, block): (&Stored, usize), scores: &mut [f32]) {
    let scales = scales_of(s, keys, block);
    let sums = scores.as_chunks_mut::<LANES>().0.iter_mut().zip(partial.as_chunks::<LANES>().0);
    for (i, (score, part)) in sums.enumerate() {
        let before = if block == 0 { s.splat(0.0) } else { s.load(score) };
        let sum = s.fma(s.load(part), scales[i % (PAGE / LANES)], before);
        s.store(sum, score);
    }
}

/// The weights of a query's values `[scale_count][PAGE]`, each times the scale of its block of components.
#[inline(always)]
pub(super) fn weights<S: Simd>(s: S, exponentials: &[f32], values: &Stored, out: &mut [f32]) {
    let (exponentials, _) = exponentials.as_chunks::<LANES>();
    let mut block = 0;
    while block < values.scale_count {
        let scales = scales_of(s, values, block);
        let (out, _) = out[block * PAGE..(block + 1) * PAGE].as_chunks_mut::<LANES>();
        for (i, (out, e)) in out.iter_mut().zip(exponentials).enumerate() {
            s.store(s.mul(s.load(e), scales[i]), out);
        }
        block += 1;
    }
}

/// The scales of a block of components, for all positions.
#[inline(always)]
pub(super) fn scales_of<S: Simd>(s: S, from: &Stored, block: usize) -> [S::V; PAGE / LANES] {
    let mut out = [s.splat(0.0); PAGE / LANES];
    for (i, out) in out.iter_mut().enumerate() {
        *out = scales_at(s, from, block, i * LANES);
    }
    out
}

/// The scales of a block of components, for sixteen positions from `first` on.
#[inline(always)]
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
pub(super) fn scales_at<S: Simd>(s: S, from: &Stored, block: usize, first: usize) -> S::V {
    assert!(block < from.scale_count && first + LANES <= PAGE, "block {block} of {}", from.scale_count);
    // SAFETY: `scales` holds PAGE scales for each of `scale_count` blocks.
    unsafe { s.read_f16(from.scales.add((block * PAGE + first) * SCALE_BYTES)) }
}
