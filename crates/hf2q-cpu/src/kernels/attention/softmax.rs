//! The running maximum and sum of a query's softmax (Milakov & Gimelshein 2018).

use hf2q_plan::PAGE;

use super::{Buffers, ScoreParams};
use crate::kernels::elementwise::soft_cap;
use crate::simd::{LANES, Simd, exp};

/// What has been seen of a query's scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    largest: f32,
    /// Sum of `e^(score - largest)`.
    pub(super) total: f32,
}

impl Running {
    /// Nothing seen yet, for `queries` queries.
    pub(super) fn start(buffers: &mut Buffers, queries: usize, stride: usize) {
        buffers.running.clear();
        buffers.running.resize(queries, Self { largest: f32::NEG_INFINITY, total: 0.0 });
        buffers.sums.clear();
        buffers.sums.resize(queries * stride, 0.0);
        buffers.scores.resize(super::MOST * PAGE, 0.0);
        buffers.partial.resize(super::MOST * PAGE, 0.0);
    }
}

/// Takes a block's dot products, of which positions `low .. high` count: they become exponentials, the others zeros, and
/// the running sums move to the new maximum.
#[inline(always)]
pub(super) fn update<S: Simd>(
    s: S,
    (scores, seen): (&mut [f32], (usize, usize)),
    params: &ScoreParams,
    (running, sums): (&mut Running, &mut [f32]),
) {
    let (scores, _) = scores.as_chunks_mut::<LANES>();
    let scores: &mut [_; PAGE / LANES] = scores.try_into().expect("a row of scores is a page wide");
    let none = s.splat(f32::NEG_INFINITY);
    let mut largest = s.splat(running.largest);
    let mut masked = [none; PAGE / LANES];
    for (i, scores) in scores.iter().enumerate() {
        let mut x = s.mul(s.load(scores), s.splat(params.scale));
        if let Some(cap) = params.softcap {
            x = soft_cap(s, x, cap);
        }
        masked[i] = s.in_lanes(x, lanes(seen, i), none);
        largest = s.max(largest, masked[i]);
    }
    let largest = s.largest(largest);
    let mut parts = [s.splat(0.0); PAGE / LANES];
    for (i, scores) in scores.iter_mut().enumerate() {
        let e = exp(s, s.sub(masked[i], s.splat(largest)));
        parts[i] = s.in_lanes(e, lanes(seen, i), s.splat(0.0));
        s.store(parts[i], scores);
    }
    let sum = s.sum(s.add(s.add(parts[0], parts[1]), s.add(parts[2], parts[3])));
    if largest != running.largest {
        rescale(s, running, largest, sums);
    }
    running.total += sum;
}

/// Moves what was summed to a larger maximum.
#[inline(always)]
fn rescale<S: Simd>(s: S, running: &mut Running, largest: f32, sums: &mut [f32]) {
    let factor = exp(s, s.sub(s.splat(running.largest), s.splat(largest)));
    for v in sums.as_chunks_mut::<LANES>().0 {
        let scaled = s.mul(s.load(v), factor);
        s.store(scaled, v);
    }
    let mut lanes = [0.0; LANES];
    s.store(factor, &mut lanes);
    running.total *= lanes[0];
    running.largest = largest;
}

/// The part of `low .. high` that vector `i` holds.
#[inline(always)]
fn lanes((low, high): (usize, usize), i: usize) -> (usize, usize) {
    let first = i * LANES;
    (low.clamp(first, first + LANES) - first, high.clamp(first, first + LANES) - first)
}
