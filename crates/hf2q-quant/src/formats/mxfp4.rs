//! `mxfp4`: 32 values as 4-bit floats (E2M1) under a power of two (OCP Microscaling Formats 1.0).
//!
//! | bytes | part |
//! |---|---|
//! | 0 | exponent of the scale, E8M0 |
//! | 1..17 | codes: byte `j` holds value `j` low, value `j + 16` high |

use std::ops::Range;

use crate::direct::{self, Direct, Values};
use crate::lanes::{Floats, Ints, Simd};

use crate::layout::{KVALUES_MXFP4, e8m0_half};

/// Values of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 17;
/// Offset of the exponent.
pub const E: usize = 0;
/// Codes.
pub const QS: Range<usize> = 1..17;

/// Decodes one block. The code for negative zero gives +0.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = e8m0_half(block[E]);
    let (low, high) = out.split_at_mut(LEN / 2);
    for ((&q, low), high) in block[QS].iter().zip(low).zip(high) {
        *low = f32::from(KVALUES_MXFP4[usize::from(q & 15)]) * d;
        *high = f32::from(KVALUES_MXFP4[usize::from(q >> 4)]) * d;
    }
}

/// From this magnitude on, the format has only infinity: the exponent of the block rounds up to 128.
pub(crate) const LIMIT: f32 = f32::from_bits(0x7f7f_ffff - 43);

/// Encodes one block of finite values below the limit.
#[inline(always)]
pub fn quantize_block(x: &[f32; LEN], block: &mut [u8; BYTES]) {
    let e = exponent(super::max_magnitude(x));
    block[E] = e;
    let d = e8m0_half(e);
    let (low, high) = x.split_at(LEN / 2);
    for ((q, low), high) in block[QS].iter_mut().zip(low).zip(high) {
        *q = code(*low, d) | (code(*high, d) << 4);
    }
}

/// The exponent that lets the largest magnitude of a block lie among the largest codes: 125 above that of the
/// magnitude.
pub(super) fn exponent(most: f32) -> u8 {
    const NAN: i32 = 255;
    if most == 0.0 {
        return 0;
    }
    // A negative exponent, of magnitudes whose codes are all zero, wraps around in the reference. It must not
    // become the one that means NaN: there the next larger exponent that exists is taken.
    match (floor_log2(most) + 125) & 255 {
        NAN => 0,
        e => e as u8,
    }
}

/// The largest integer not above the logarithm as a single rounds it: just below a power of two it rounds up to
/// the power's exponent. There the logarithm is short of it by `m 2⁻²⁴ / ln 2`, for `m` steps between singles,
/// and the rounding moves it by up to `2⁻²⁴` times the power of two in the exponent.
fn floor_log2(magnitude: f32) -> i32 {
    const LN_2_BY_512: u32 = 354;
    const TWO_32: f32 = 4_294_967_296.0;
    let is_subnormal = !magnitude.is_normal();
    let (bits, offset) =
        if is_subnormal { ((magnitude * TWO_32).to_bits(), 159) } else { (magnitude.to_bits(), 127) };
    let floor = (bits >> 23) as i32 - offset;
    let within = if floor > 0 { floor } else { -floor - 1 };
    let steps = if within > 0 { LN_2_BY_512 >> (9 - within.ilog2()) } else { 0 };
    ((bits + steps) >> 23) as i32 - offset
}

/// Midpoints between the levels.
const STEPS: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

/// Nearest code, of two equally near the one nearer to zero. Only the code of +0 is used for zero.
#[inline(always)]
fn code(v: f32, d: f32) -> u8 {
    let magnitude = v.abs();
    let mut code = 0;
    for step in STEPS {
        code += u8::from(magnitude > step * d);
    }
    if v < 0.0 && code > 0 { code | 8 } else { code }
}

/// Encodes blocks of finite values below the limit.
pub(crate) fn quantize(x: &[f32], out: &mut [u8]) {
    direct::encode::<Format, BYTES>(x, out);
}

pub(super) struct Format;

impl Direct<BYTES> for Format {
    #[inline(always)]
    fn encode<S: Simd>(values: &Values<'_, S>, block: &mut [u8; BYTES]) {
        let e = exponent(values.most());
        block[E] = e;
        let d = e8m0_half(e);
        let [low, high] = values.halves();
        direct::put_nibbles([codes(values, low, d), codes(values, high, d)], &mut block[QS]);
    }
}

/// Nearest codes of half a block.
#[inline(always)]
fn codes<S: Simd>(values: &Values<'_, S>, x: Floats<S>, d: f32) -> Ints<S> {
    let (magnitude, one) = (x.abs(), values.splat_int(1));
    let below_zero = x.less(values.splat(-STEPS[0] * d));
    let mut code = below_zero.select_ints(values.splat_int(8), values.splat_int(0));
    for step in STEPS {
        code = magnitude.more(values.splat(step * d)).select_ints(code + one, code);
    }
    code
}
