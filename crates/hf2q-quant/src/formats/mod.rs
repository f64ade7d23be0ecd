//! One file per format: layout, decoder, and what of the encoder is the format's own. Encoders share the lanes of
//! `direct` (scales decided by the extreme values), `weighted` and `levels` (32 values, searched) and `super_block`
//! (256 values, searched); `quantize_block` is a format's definition in scalar code. The dispatch has a line for
//! each.

pub(crate) mod bf16;
pub(crate) mod f16;
pub(crate) mod fp32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod tq1_0;
pub mod tq2_0;

use crate::lanes::LANES;

/// From this magnitude on, rounding to half precision gives infinity.
const F16_OVERFLOW: f32 = 65520.0;

/// The half precision number at a byte offset.
#[inline]
fn half_at(block: &[u8], at: usize) -> f32 {
    crate::half::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Writes a number as half precision at a byte offset.
#[inline(always)]
fn put_half(block: &mut [u8], at: usize, value: f32) {
    use crate::half::{f32_to_f16, number_to_f16};
    let half = if value.is_nan() { f32_to_f16(value) } else { number_to_f16(value) };
    block[at..at + 2].copy_from_slice(&half.to_le_bytes());
}

/// The smallest and the largest value, of equal ones (zeros of either sign) the first.
#[inline(always)]
fn range<const LEN: usize>(x: &[f32; LEN]) -> (f32, f32) {
    let (mut min, mut max) = (x[0], x[0]);
    for &v in x {
        min = if v < min { v } else { min };
        max = if v > max { v } else { max };
    }
    (min, max)
}

/// What values are multiplied with to get codes, or 0 for a scale that has no finite inverse.
#[inline(always)]
fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// The array that a part of a block is.
#[inline]
fn part<const N: usize>(block: &[u8], at: std::ops::Range<usize>) -> &[u8; N] {
    block[at].first_chunk().expect("a layout's range is as long as the part")
}

/// The largest magnitude. Magnitudes are ordered as their bits are, and integers have a fast maximum everywhere.
#[inline]
pub(crate) fn max_magnitude<const LEN: usize>(x: &[f32; LEN]) -> f32 {
    let bits = x.iter().fold(0, |most: i32, v| most.max(v.abs().to_bits() as i32));
    f32::from_bits(bits as u32)
}

/// The first value of the largest magnitude, +0 if all are zero.
#[inline(always)]
fn extreme<const LEN: usize>(x: &[f32; LEN]) -> f32 {
    let most = max_magnitude(x);
    let (mut plus, mut minus) = (false, false);
    for &v in x {
        plus |= v == most;
        minus |= v == -most;
    }
    match (plus, minus) {
        (true, false) => most,
        (false, _) => -most,
        (true, true) => x.iter().copied().find(|v| v.abs() == most && most > 0.0).unwrap_or(0.0),
    }
}

/// Writes 32 codes of five bits: the fifth bits (bit `j` is code `j`), then the low nibbles (code `j` low, code
/// `j + 16` high in byte `j`).
#[inline(always)]
fn put_fifths(codes: &[u8; 32], out: &mut [u8]) {
    let mut fifths = 0;
    for (j, code) in codes.iter().enumerate() {
        fifths |= u32::from(code >> 4) << j;
    }
    let (qh, qs) = out.split_at_mut(4);
    qh.copy_from_slice(&fifths.to_le_bytes());
    let (low, high) = codes.split_at(16);
    for ((q, low), high) in qs.iter_mut().zip(low).zip(high) {
        *q = (low & 15) | (high << 4);
    }
}

/// Writes 32 codes of four bits: byte `j` holds code `j` low, code `j + 16` high.
#[inline(always)]
fn put_nibbles(codes: &[u8; 32], out: &mut [u8]) {
    let (low, high) = codes.split_at(16);
    for ((q, low), high) in out.iter_mut().zip(low).zip(high) {
        *q = low | (high << 4);
    }
}

/// The codes of one of sixteen groups.
#[inline(always)]
fn lane<const LEN: usize>(codes: &[[u8; LANES]; LEN], lane: usize) -> [u8; LEN] {
    let mut out = [0; LEN];
    for (out, codes) in out.iter_mut().zip(codes) {
        *out = codes[lane];
    }
    out
}

/// The scale of a group of `iq2_xs` or `iq2_s`: one of two nibbles.
#[inline]
fn iq2_scale(d: f32, nibbles: u8, which: usize) -> f32 {
    d * (0.5 + f32::from(nibbles >> (4 * which) & 15)) * 0.25
}

/// Decodes a word of `iq1_s` or `iq1_m`, whose values are shifted by an eighth up or down.
#[inline]
fn iq1_word(code: usize, scale: f32, is_down: bool, out: &mut [f32; 8]) {
    let shift = if is_down { -0.125 } else { 0.125 };
    for (out, &level) in out.iter_mut().zip(&crate::grids::IQ1[code]) {
        *out = scale * (f32::from(level) + shift);
    }
}

#[cfg(test)]
mod tests;
