//! One file per format. An encoder is a `quantize_block` and a `LIMIT` added to the format's file, and a line in
//! the dispatch.

pub(crate) mod bf16;
pub(crate) mod f16;
pub(crate) mod fp32;
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

/// From this magnitude on, rounding to half precision gives infinity.
const F16_OVERFLOW: f32 = 65520.0;

/// The half precision number at a byte offset.
#[inline]
fn half_at(block: &[u8], at: usize) -> f32 {
    crate::half::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// The array that a part of a block is.
#[inline]
fn part<const N: usize>(block: &[u8], at: std::ops::Range<usize>) -> &[u8; N] {
    block[at].first_chunk().expect("a layout's range is as long as the part")
}

/// The largest magnitude. Magnitudes are ordered as their bits are, and integers have a fast maximum everywhere.
#[inline]
fn max_magnitude<const LEN: usize>(x: &[f32; LEN]) -> f32 {
    let bits = x.iter().fold(0, |most: i32, v| most.max(v.abs().to_bits() as i32));
    f32::from_bits(bits as u32)
}
