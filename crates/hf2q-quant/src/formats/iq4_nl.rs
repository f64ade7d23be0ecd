//! `iq4_nl`: 32 values as 4-bit indices into uneven levels, `x = d * level[q]`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | codes: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::groups::{self, Side};
use crate::lanes::{Floats, Isa, Kernel, LANES, Simd};
use crate::layout::KVALUES_IQ4NL;
use crate::levels::{self, Search};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Offset of the scale.
pub const D: usize = 0;
/// Codes.
pub const QS: Range<usize> = 2..18;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let (low, high) = out.split_at_mut(LEN / 2);
    for ((&q, low), high) in block[QS].iter().zip(low).zip(high) {
        *low = d * f32::from(KVALUES_IQ4NL[usize::from(q & 15)]);
        *high = d * f32::from(KVALUES_IQ4NL[usize::from(q >> 4)]);
    }
}

/// A magnitude that no scale brings within half precision.
pub(crate) const LIMIT: f32 = 4.0 * 127.0 * super::F16_OVERFLOW;

/// Encodes blocks of finite values below the limit.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    encode_on(Isa::detect(), (x, None), out);
}

/// The same for whole rows, with a weight for each column.
pub(crate) fn quantize_weighted(x: &[f32], weights: &[f32], out: &mut [u8]) {
    encode_on(Isa::detect(), (x, Some(weights)), out);
}

/// Encodes with a given instruction set.
pub(super) fn encode_on(isa: Isa, (x, weights): (&[f32], Option<&[f32]>), out: &mut [u8]) {
    isa.run(Encode { x, weights, out });
}

struct Encode<'a> {
    x: &'a [f32],
    weights: Option<&'a [f32]>,
    out: &'a mut [u8],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut search = Search::new();
        let batches = self.x.chunks(LANES * LEN).zip(self.out.chunks_mut(LANES * BYTES));
        for (number, (x, out)) in batches.enumerate() {
            let x = groups::side(s, x, 0);
            let mut weights = [[0.0; LANES]; LEN];
            match self.weights {
                None => groups::squares(s, &x, &mut weights),
                Some(importance) => {
                    weights = groups::side(s, importance, number * LANES);
                    weigh(s, &x, &mut weights);
                }
            }
            let scale = search.run(s, &x, &weights);
            encode_batch(s, &x, scale, out);
        }
    }
}

/// Turns importance into weights.
#[inline(always)]
fn weigh<S: Simd>(s: S, x: &Side, weights: &mut Side) {
    let sigma2 = groups::sum_of_squares(s, x) * Floats::splat(s, 2.0 / LEN as f32);
    let unimportant = groups::all_zero(s, weights);
    groups::weigh(s, x, sigma2, unimportant, weights);
}

/// Writes blocks under their scales.
#[inline(always)]
fn encode_batch<S: Simd>(s: S, x: &Side, scale: Floats<S>, out: &mut [u8]) {
    let zero = Floats::splat(s, 0.0);
    let inverse = scale.equal(zero).select(zero, Floats::splat(s, 1.0) / scale);
    let mut packed = [[0; LANES]; LEN / 2];
    levels::pack(s, x, inverse, &mut packed);
    for (lane, (block, scale)) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(scale.to_array()).enumerate()
    {
        super::put_half(block, D, scale);
        for (q, packed) in block[QS].iter_mut().zip(&packed) {
            *q = packed[lane];
        }
    }
}
