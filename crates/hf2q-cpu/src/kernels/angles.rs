//! Cosines and sines of positions, for rotations.
//!
//! A position's angles are those of its page's first position turned on by those of its place in the page, in double
//! precision. Whoever needs a single row and whoever needs a whole page get the same bits.

use std::ops::Range;
use std::sync::Arc;

use hf2q_plan::{PAGE, RopeParams};

use crate::call::{Call, Context, Scratch, Work};
use crate::memory::Place;
use crate::step::StepData;

/// The pairs of a rotation that turn. Later ones, whose angle is nothing at any position, are left as they are.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Angle per position of each pair.
    frequencies: Vec<f64>,
    /// `[pairs][PAGE]`: cosines and sines of positions in the first page.
    offsets: [Vec<f64>; 2],
    magnitude: f64,
}

impl Rotation {
    /// `factors` are the `dims/2` divisors of the angles, if there are any.
    pub(crate) fn new(p: &RopeParams, factors: Option<&[f32]>) -> Self {
        /// An angle whose sine adds nothing to a number.
        const NOTHING: f64 = 1e-12;
        let mut frequencies = p.frequencies(factors);
        let turns = |f: &f64| p.magnitude != 1.0 || f.is_nan() || f.abs() * f64::from(u32::MAX) > NOTHING;
        frequencies.truncate(frequencies.iter().rposition(turns).map_or(0, |last| last + 1));
        let angles = || frequencies.iter().flat_map(|f| (0..PAGE).map(move |i| i as f64 * f));
        let offsets = [angles().map(f64::cos).collect(), angles().map(f64::sin).collect()];
        Self { frequencies, offsets, magnitude: f64::from(p.magnitude) }
    }

    /// Pairs that turn: the first ones.
    pub(crate) fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Cosine and sine of a pair at the first position of a page.
    fn page(&self, page: usize, pair: usize) -> [f64; 2] {
        let (sin, cos) = ((page * PAGE) as f64 * self.frequencies[pair]).sin_cos();
        [cos, sin]
    }

    /// The cosine of every pair at a position, then the sine of every pair.
    fn row(&self, position: usize, out: &mut [f32]) {
        let (page, at) = (position / PAGE, position % PAGE);
        let (cos, sin) = out.split_at_mut(self.pairs());
        for (pair, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
            let [offset_cos, offset_sin] = self.offsets.each_ref().map(|o| o[pair * PAGE + at]);
            [*cos, *sin] = sum(self.page(page, pair), offset_cos, offset_sin, self.magnitude);
        }
    }
}

/// Cosine and sine of the sum of two angles, as rows are multiplied with them.
#[inline(always)]
fn sum(page: [f64; 2], cos: f64, sin: f64, magnitude: f64) -> [f32; 2] {
    let (sum_cos, sum_sin) = (page[0] * cos - page[1] * sin, page[1] * cos + page[0] * sin);
    [(sum_cos * magnitude) as f32, (sum_sin * magnitude) as f32]
}

/// The angles of whole pages of positions.
#[derive(Debug)]
pub(crate) struct Pages {
    rotation: Arc<Rotation>,
    /// `[pages][pairs]`: cosines and sines at the first position of each page.
    first: Vec<[f64; 2]>,
}

impl Pages {
    /// `pages` of them are kept; others are computed when they are asked for.
    pub(crate) fn new(rotation: Arc<Rotation>, pages: usize) -> Self {
        let page = |page| (0..rotation.pairs()).map(move |pair| (page, pair));
        let first = (0..pages).flat_map(page).map(|(page, pair)| rotation.page(page, pair)).collect();
        Self { rotation, first }
    }

    /// Bytes of what is kept.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.first)
    }

    /// Pairs that turn: the first ones.
    pub(crate) fn pairs(&self) -> usize {
        self.rotation.pairs()
    }

    /// Cosine and sine of a pair at the first position of a page.
    #[inline(always)]
    pub(crate) fn first(&self, page: usize, pair: usize) -> [f32; 2] {
        if pair >= self.pairs() {
            return [1.0, 0.0];
        }
        let known = self.first.get(page * self.pairs() + pair);
        let [cos, sin] = known.copied().unwrap_or_else(|| self.rotation.page(page, pair));
        [cos as f32, sin as f32]
    }

    /// Cosine and sine of a pair at a position of the first page, as keys are multiplied with them.
    pub(crate) fn offset(&self, pair: usize, at: usize) -> [f32; 2] {
        if pair >= self.pairs() {
            return [1.0, 0.0];
        }
        let offset = self.rotation.offsets.each_ref().map(|o| o[pair * PAGE + at]);
        offset.map(|x| (x * self.rotation.magnitude) as f32)
    }

    /// Cosines and sines of a page, `[pairs][PAGE]`.
    #[inline(always)]
    pub(crate) fn page(&self, page: usize, cos: &mut [f32], sin: &mut [f32]) {
        let (pairs, magnitude) = (self.pairs(), self.rotation.magnitude);
        let (cos, sin) = (cos.as_chunks_mut::<PAGE>().0, sin.as_chunks_mut::<PAGE>().0);
        let offsets = self.rotation.offsets.each_ref().map(|o| o.as_chunks::<PAGE>().0);
        for pair in 0..pairs {
            let known = self.first.get(page * pairs + pair);
            let first = known.copied().unwrap_or_else(|| self.rotation.page(page, pair));
            let (cos, sin) = (&mut cos[pair], &mut sin[pair]);
            let (offset_cos, offset_sin) = (&offsets[0][pair], &offsets[1][pair]);
            for i in 0..PAGE {
                [cos[i], sin[i]] = sum(first, offset_cos[i], offset_sin[i], magnitude);
            }
        }
    }
}

/// Fills the table of a step's cosines and sines. A unit is a row.
pub(crate) struct Angles {
    pub(crate) rotation: Arc<Rotation>,
    pub(crate) table: Place,
}

impl Call for Angles {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.step.len(), self.rotation.pairs(), 30.0)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let table = cx.view(self.table);
        for row in units {
            self.rotation.row(cx.step.position(row), table.row_mut(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use hf2q_plan::Pairing;

    use super::*;

    fn params(magnitude: f32) -> RopeParams {
        let (pairing, factors, yarn) = (Pairing::Halves, None, None);
        RopeParams { dims: 16, pairing, base: 1e4, freq_scale: 1.0, factors, yarn, magnitude }
    }

    #[test]
    fn rows_and_pages_have_the_same_bits_and_are_angles() {
        let rotation = Arc::new(Rotation::new(&params(1.5), None));
        // Some pages are kept, others are not.
        let pages = Pages::new(Arc::clone(&rotation), 3);
        for page in [0, 1, 2, 3, 100, 60_000_000] {
            let (mut cos, mut sin) = (vec![0.0; 8 * PAGE], vec![0.0; 8 * PAGE]);
            pages.page(page, &mut cos, &mut sin);
            for i in 0..PAGE {
                let mut row = vec![0.0; 16];
                let position = page * PAGE + i;
                rotation.row(position, &mut row);
                for pair in 0..8 {
                    let at = pair * PAGE + i;
                    assert_eq!((row[pair], row[8 + pair]), (cos[at], sin[at]), "position {position}");
                    let (s, c) = (position as f64 * 1e4_f64.powf(-(pair as f64) / 8.0)).sin_cos();
                    let error = (f64::from(cos[at]) - 1.5 * c).abs() + (f64::from(sin[at]) - 1.5 * s).abs();
                    assert!(error < 1e-5, "position {position}, pair {pair}: {error}");
                }
            }
        }
    }

    #[test]
    fn pairs_that_never_turn_are_left_out() {
        let mut factors = [1.0; 8];
        factors[3..].fill(1e30);
        assert_eq!(Rotation::new(&params(1.0), Some(&factors)).pairs(), 3);
        // Every pair is multiplied by the magnitude.
        assert_eq!(Rotation::new(&params(1.1), Some(&factors)).pairs(), 8);
        assert_eq!(Rotation::new(&params(1.0), None).pairs(), 8);
    }
}
