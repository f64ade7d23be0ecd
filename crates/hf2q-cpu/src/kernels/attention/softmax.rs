//! The running maximum and sum of a query's softmax (Milakov & Gimelshein 2018).

use hf2q_plan::PAGE;

use super::ScoreParams;
use crate::kernels::elementwise::soft_cap;
use crate::simd::{LANES, Simd, exp};

/// What has been seen of a query's scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) largest: f32,
    /// Sum of `e^(score - largest)`.
    pub(super) total: f32,
}

impl Running {
    /// Nothing seen yet.
    pub(super) const NONE: Self = Self { largest: f32::NEG_INFINITY, total: 0.0 };

    /// Whether no score has been seen: the largest of any adds 1 to the sum.
    pub(super) fn is_none(&self) -> bool {
        self.total == 0.0
    }
}

/// The softmax of some queries over some blocks.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) running: Vec<Running>,
    /// `[queries][stride]`: weighted sums of values.
    pub(super) values: Vec<f32>,
}

impl Sums {
    /// Nothing seen yet, for `queries` queries.
    pub(super) fn clear(&mut self, queries: usize, stride: usize) {
        self.running.clear();
        self.running.resize(queries, Running::NONE);
        self.values.clear();
        self.values.resize(queries * stride, 0.0);
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
    let all = seen == (0, PAGE);
    let none = s.splat(f32::NEG_INFINITY);
    let mut largest = s.splat(running.largest);
    let mut masked = [none; PAGE / LANES];
    for (i, scores) in scores.iter().enumerate() {
        let mut x = s.mul(s.load(scores), s.splat(params.scale));
        if let Some(cap) = params.softcap {
            x = soft_cap(s, x, cap);
        }
        masked[i] = if all { x } else { s.in_lanes(x, lanes(seen, i), none) };
        largest = s.max(largest, masked[i]);
    }
    let largest = s.largest(largest);
    let mut parts = [s.splat(0.0); PAGE / LANES];
    for (i, scores) in scores.iter_mut().enumerate() {
        let e = exp(s, s.sub(masked[i], s.splat(largest)));
        parts[i] = if all { e } else { s.in_lanes(e, lanes(seen, i), s.splat(0.0)) };
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
    if !running.is_none() {
        let factor = exp(s, s.sub(s.splat(running.largest), s.splat(largest)));
        for v in sums.as_chunks_mut::<LANES>().0 {
            let scaled = s.mul(s.load(v), factor);
            s.store(scaled, v);
        }
        running.total *= first(s, factor);
    }
    running.largest = largest;
}

/// Adds what was seen of a range of blocks to what was seen of those before it.
#[inline(always)]
pub(super) fn merge<S: Simd>(
    s: S,
    (all, all_sums): (&mut Running, &mut [f32]),
    (part, part_sums): (Running, &[f32]),
) {
    if part.is_none() {
        return;
    }
    // What comes first is taken as it is, whoever merges it: added to zeros, a negative zero would lose its sign.
    if all.is_none() {
        *all = part;
        all_sums.copy_from_slice(part_sums);
        return;
    }
    let one = s.splat(1.0);
    // The exponential of zero is 1.
    let (largest, old, new) = if all.largest >= part.largest {
        (all.largest, one, exp(s, s.splat(part.largest - all.largest)))
    } else {
        (part.largest, exp(s, s.splat(all.largest - part.largest)), one)
    };
    let sums = all_sums.as_chunks_mut::<LANES>().0.iter_mut().zip(part_sums.as_chunks::<LANES>().0);
    for (all, part) in sums {
        let sum = s.fma(s.load(part), new, s.mul(s.load(all), old));
        s.store(sum, all);
    }
    let total = s.fma(s.splat(part.total), new, s.mul(s.splat(all.total), old));
    *all = Running { largest, total: first(s, total) };
}

/// The first lane.
#[inline(always)]
fn first<S: Simd>(s: S, v: S::V) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(v, &mut lanes);
    lanes[0]
}

/// The part of `low .. high` that vector `i` holds.
#[inline(always)]
fn lanes((low, high): (usize, usize), i: usize) -> (usize, usize) {
    let first = i * LANES;
    (low.clamp(first, first + LANES) - first, high.clamp(first, first + LANES) - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::{Kernel, dispatch};

    /// Merges a part with nothing.
    struct First<'a>(Running, &'a [f32]);

    impl Kernel for First<'_> {
        type Output = (Running, Vec<f32>);

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (Running, Vec<f32>) {
            let (mut running, mut sums) = (Running::NONE, vec![0.0; self.1.len()]);
            merge(s, (&mut running, &mut sums), (self.0, self.1));
            (running, sums)
        }
    }

    #[test]
    fn the_first_part_keeps_its_bits() {
        let part = Running { largest: -3.0, total: 1.5 };
        let sums: Vec<f32> = (0..2 * LANES).map(|i| if i % 3 == 0 { -0.0 } else { i as f32 - 9.0 }).collect();
        for isa in Isa::available() {
            let (running, merged) = dispatch(isa, First(part, &sums));
            assert_eq!((running.largest, running.total), (part.largest, part.total), "{}", isa.name());
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&merged), bits(&sums), "{}", isa.name());
        }
    }
}
