//! The search for the scale of 32 values over the uneven levels of `iq4_nl` and `iq4_xs`, in lanes.

use crate::groups::{LEN, Side};
use crate::lanes::{Floats, Ints, LANES, Mask, Simd};
use crate::layout::KVALUES_IQ4NL;

/// Levels, in order.
const LEVELS: [f32; LANES] = levels();

/// Midpoint `k` lies between levels `k` and `k + 1`; a value on it belongs to the upper one. The last is beyond
/// all values.
const MIDPOINTS: [f32; LANES] = midpoints();

/// Groups whose largest magnitude is below this count as zeros.
const TINY: f32 = 1e-15;

/// Scales tried besides the first: those that take the extreme value to `-127 ± STEPS`.
const STEPS: i32 = 7;

const fn levels() -> [f32; LANES] {
    let mut levels = [0.0; LANES];
    let mut k = 0;
    while k < LANES {
        levels[k] = KVALUES_IQ4NL[k] as f32;
        k += 1;
    }
    levels
}

const fn midpoints() -> [f32; LANES] {
    let mut midpoints = [f32::INFINITY; LANES];
    let mut k = 0;
    while k + 1 < LANES {
        midpoints[k] = (LEVELS[k] + LEVELS[k + 1]) / 2.0;
        k += 1;
    }
    midpoints
}

/// Number of the midpoint that decides between levels for values near `v`, magnitudes up to 135: a parabola on
/// each side of zero follows the midpoints to within half a step, with room for `v` to grow or shrink by 5.5 %.
#[inline(always)]
fn midpoint_near<S: Simd>(s: S, v: Floats<S>) -> Ints<S> {
    let slope = Floats::splat(s, 0.0945) - Floats::splat(s, 0.000_277_5) * v.abs();
    (Floats::splat(s, 7.36) + v * slope).nearest_int()
}

/// Number of the nearest level, of two equally near the upper one; of NaN the last.
#[inline(always)]
pub(crate) fn nearest<S: Simd>(s: S, v: Floats<S>) -> Ints<S> {
    let v = v.min(Floats::splat(s, LEVELS[LANES - 1])).max(Floats::splat(s, LEVELS[0]));
    let k = midpoint_near(s, v);
    v.less(Floats::lookup(&MIDPOINTS, k)).select_ints(k, k + Ints::splat(s, 1))
}

/// The two sums that decide about a scale, of products of weights, values and their levels.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    /// Level times value.
    qx: Floats<S>,
    /// Level times level.
    qq: Floats<S>,
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn zero(s: S) -> Self {
        Self { qx: Floats::splat(s, 0.0), qq: Floats::splat(s, 0.0) }
    }
}

/// The best scale so far.
struct Best<S: Simd> {
    /// The value that the scales tried take to a level.
    extreme: Floats<S>,
    scale: Floats<S>,
    score: Floats<S>,
}

impl<S: Simd> Best<S> {
    #[inline(always)]
    fn first(s: S, extreme: Floats<S>, sums: Sums<S>) -> Self {
        let zero = Floats::splat(s, 0.0);
        let scale = sums.qq.more(zero).select(sums.qx / sums.qq, zero);
        Self { extreme, scale, score: scale * sums.qx }
    }

    #[inline(always)]
    fn offer(&mut self, s: S, sums: Sums<S>) {
        let better = sums.qq.more(Floats::splat(s, 0.0)) & (sums.qx * sums.qx).more(self.score * sums.qq);
        if better.any() {
            let scale = sums.qx / sums.qq;
            self.scale = better.select(scale, self.scale);
            self.score = better.select(scale * sums.qx, self.score);
        }
    }
}

/// What one value adds to the sums: below its midpoint and from there on. Over all scales tried, a value meets
/// one midpoint at most.
#[derive(Clone, Copy)]
struct Terms {
    midpoint: [f32; LANES],
    qx: [[f32; LANES]; 2],
    qq: [[f32; LANES]; 2],
}

/// Scratch space of a search.
pub(crate) struct Search([Terms; LEN]);

impl Search {
    pub(crate) fn new() -> Self {
        let zero = [0.0; LANES];
        Self([Terms { midpoint: zero, qx: [zero; 2], qq: [zero; 2] }; LEN])
    }

    /// The scale of each of sixteen groups that loses least under weights; 0 for groups of next to nothing.
    #[inline(always)]
    pub(crate) fn run<S: Simd>(&mut self, s: S, x: &Side, weights: &Side) -> Floats<S> {
        let extreme = extreme(s, x);
        let tiny = extreme.abs().less(Floats::splat(s, TINY));
        // Lanes of tiny groups compute something and are overruled.
        let inverse = Floats::splat(s, 1.0) / (-extreme / Floats::splat(s, LEVELS[0]));
        let mut best = Best::first(s, extreme, sums_at(s, x, weights, inverse));
        self.prepare(s, x, weights, Floats::splat(s, LEVELS[0]) / extreme);
        let mut step = -STEPS;
        while step <= STEPS {
            self.offer_five(s, x, step, &mut best);
            step += 5;
        }
        tiny.select(Floats::splat(s, 0.0), best.scale)
    }

    /// Fills in the terms for scales near an inverse one.
    #[inline(always)]
    fn prepare<S: Simd>(&mut self, s: S, x: &Side, weights: &Side, inverse: Floats<S>) {
        for ((terms, x), weight) in self.0.iter_mut().zip(x).zip(weights) {
            let (x, weight) = (Floats::load(s, x), Floats::load(s, weight));
            let k = midpoint_near(s, inverse * x);
            Floats::lookup(&MIDPOINTS, k).store(&mut terms.midpoint);
            for side in 0..2 {
                let q = Floats::lookup(&LEVELS, k + Ints::splat(s, side as i32));
                (weight * q * x).store(&mut terms.qx[side]);
                (weight * q * q).store(&mut terms.qq[side]);
            }
        }
    }

    /// Tries five scales at once, for the terms to be read once.
    #[inline(always)]
    fn offer_five<S: Simd>(&self, s: S, x: &Side, step: i32, best: &mut Best<S>) {
        let mut inverses = [best.extreme; 5];
        for (i, inverse) in inverses.iter_mut().enumerate() {
            *inverse = Floats::splat(s, (step + i as i32) as f32 + LEVELS[0]) / best.extreme;
        }
        let mut sums = [Sums::zero(s); 5];
        for (terms, x) in self.0.iter().zip(x) {
            let (x, midpoint) = (Floats::load(s, x), Floats::load(s, &terms.midpoint));
            let (qx, qq) = (pair(s, &terms.qx), pair(s, &terms.qq));
            for (sums, inverse) in sums.iter_mut().zip(inverses) {
                let below: Mask<S> = (inverse * x).less(midpoint);
                sums.qx = sums.qx + below.select(qx.0, qx.1);
                sums.qq = sums.qq + below.select(qq.0, qq.1);
            }
        }
        for sums in sums {
            best.offer(s, sums);
        }
    }
}

#[inline(always)]
fn pair<S: Simd>(s: S, sides: &[[f32; LANES]; 2]) -> (Floats<S>, Floats<S>) {
    (Floats::load(s, &sides[0]), Floats::load(s, &sides[1]))
}

/// The first value of the largest magnitude.
#[inline(always)]
fn extreme<S: Simd>(s: S, x: &Side) -> Floats<S> {
    let mut extreme = Floats::splat(s, 0.0);
    let mut most = extreme;
    for x in x {
        let x = Floats::load(s, x);
        let more = x.abs().more(most);
        most = more.select(x.abs(), most);
        extreme = more.select(x, extreme);
    }
    extreme
}

/// The sums at any scale.
#[inline(always)]
fn sums_at<S: Simd>(s: S, x: &Side, weights: &Side, inverse: Floats<S>) -> Sums<S> {
    let mut sums = Sums::zero(s);
    for (x, weight) in x.iter().zip(weights) {
        let (x, weight) = (Floats::load(s, x), Floats::load(s, weight));
        let q = Floats::lookup(&LEVELS, nearest(s, inverse * x));
        sums.qx = sums.qx + weight * q * x;
        sums.qq = sums.qq + weight * q * q;
    }
    sums
}

/// Codes of sixteen groups under inverse scales, packed: of a group, byte `j` holds value `j` low and value
/// `j + 16` high.
#[inline(always)]
pub(crate) fn pack<S: Simd>(s: S, x: &Side, inverse: Floats<S>, packed: &mut [[u8; LANES]; LEN / 2]) {
    let (low, high) = x.split_at(LEN / 2);
    for ((low, high), packed) in low.iter().zip(high).zip(packed) {
        let low = nearest(s, inverse * Floats::load(s, low));
        let high = nearest(s, inverse * Floats::load(s, high));
        let high = high + high;
        let high = high + high;
        let high = high + high;
        (low + high + high).store_bytes(packed);
    }
}
