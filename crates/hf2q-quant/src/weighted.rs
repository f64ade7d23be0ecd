//! Encoders with importance of the formats whose blocks are single groups of 32 values under scales of their own.

use std::marker::PhantomData;

use crate::groups::{self, LEN, Side};
use crate::lanes::{Floats, Isa, Kernel, LANES, Simd};

/// A format of 32 values in `BYTES` bytes.
pub(crate) trait Weighted<const BYTES: usize> {
    /// Encodes sixteen groups with weights, and keeps as many as there are blocks. Implementations are
    /// `#[inline(always)]`.
    fn encode<S: Simd>(s: S, x: &Side, weights: &Side, blocks: &mut [[u8; BYTES]]);

    /// Encodes a block none of whose values matters, where [`encode`](Self::encode) would lose them.
    fn encode_unimportant(x: &[f32; LEN], block: &mut [u8; BYTES]);
}

/// Encodes finite values, whole rows of as many columns as there are weights.
pub(crate) fn encode<F: Weighted<BYTES>, const BYTES: usize>(x: &[f32], importance: &[f32], out: &mut [u8]) {
    encode_on::<F, BYTES>(Isa::detect(), (x, importance), out);
}

/// [`encode`] with a given instruction set.
pub(crate) fn encode_on<F: Weighted<BYTES>, const BYTES: usize>(
    isa: Isa,
    (x, importance): (&[f32], &[f32]),
    out: &mut [u8],
) {
    let sigma2 = mean_squares(x, importance.len());
    isa.run(Encode::<F, BYTES> { x, importance, sigma2: &sigma2, out, format: PhantomData });
}

struct Encode<'a, F, const BYTES: usize> {
    x: &'a [f32],
    importance: &'a [f32],
    /// Of each row, the mean of the squares.
    sigma2: &'a [f32],
    out: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: Weighted<BYTES>, const BYTES: usize> Kernel for Encode<'_, F, BYTES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let columns = self.importance.len() / LEN;
        let batches = self.x.chunks(LANES * LEN).zip(self.out.chunks_mut(LANES * BYTES));
        for (number, (values, out)) in batches.enumerate() {
            let (first, blocks) = (number * LANES, out.as_chunks_mut::<BYTES>().0);
            let x = groups::side(s, values, 0);
            let mut weights = groups::side(s, self.importance, first);
            let unimportant = groups::all_zero(s, &weights).bits();
            let mut sigma2 = [0.0; LANES];
            for (lane, sigma2) in sigma2.iter_mut().enumerate().take(blocks.len()) {
                *sigma2 = self.sigma2[(first + lane) / columns];
            }
            let none = Floats::splat(s, 0.0).less(Floats::splat(s, 0.0));
            groups::weigh(s, &x, Floats::load(s, &sigma2), none, &mut weights);
            F::encode(s, &x, &weights, blocks);
            for (lane, (x, block)) in values.as_chunks().0.iter().zip(blocks).enumerate() {
                if unimportant >> lane & 1 == 1 {
                    F::encode_unimportant(x, block);
                }
            }
        }
    }
}

/// Means of the squares of each row, summed in order. Eight rows at a time, for an addition waits for the one
/// before.
fn mean_squares(x: &[f32], columns: usize) -> Vec<f32> {
    const ROWS: usize = 8;
    let mut means = Vec::with_capacity(x.len() / columns);
    for rows in x.chunks(ROWS * columns) {
        let mut sums = [0.0_f32; ROWS];
        let count = rows.len() / columns;
        if count == ROWS {
            let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &rows[row * columns..(row + 1) * columns]);
            for column in 0..columns {
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum += row[column] * row[column];
                }
            }
        } else {
            for (sum, row) in sums.iter_mut().zip(rows.chunks(columns)) {
                for v in row {
                    *sum += v * v;
                }
            }
        }
        means.extend(sums[..count].iter().map(|sum| sum / columns as f32));
    }
    means
}
