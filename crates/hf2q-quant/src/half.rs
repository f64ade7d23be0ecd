//! Half precision and bfloat16: single values, and the little-endian bytes of files.
//!
//! Conversions to 16 bits round to nearest, ties to even; magnitudes beyond the range become infinite. NaN
//! stays NaN and is made quiet.

use ::half::f16;
use ::half::slice::HalfFloatSliceExt;

use crate::lanes::{Kernel, Simd, dispatch};

/// Values converted at a time through a buffer on the stack.
const CHUNK: usize = 64;

/// Half precision bits to `f32` (exact).
pub fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// `f32` to half precision bits.
pub fn f32_to_f16(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

/// bfloat16 bits to `f32` (exact, NaN payloads included).
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `f32` to bfloat16 bits.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    const QUIET: u32 = 0x40;
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let upper = if value.is_nan() { (bits >> 16) | QUIET } else { rounded >> 16 };
    upper as u16
}

/// Little-endian half precision, at any alignment, to `f32`.
///
/// # Panics
/// If `src` is not two bytes for every value of `dst`.
pub fn f16_bytes_to_f32(src: &[u8], dst: &mut [f32]) {
    let (src, rest) = src.as_chunks::<2>();
    assert!(rest.is_empty() && src.len() == dst.len(), "two bytes for every value");
    for (bytes, values) in src.chunks(CHUNK).zip(dst.chunks_mut(CHUNK)) {
        let mut halves = [f16::ZERO; CHUNK];
        for (half, &bytes) in halves.iter_mut().zip(bytes) {
            *half = f16::from_le_bytes(bytes);
        }
        halves[..values.len()].convert_to_f32_slice(values);
    }
}

/// `f32` to little-endian half precision.
///
/// # Panics
/// If `dst` is not two bytes for every value of `src`.
pub fn f32_to_f16_bytes(src: &[f32], dst: &mut [u8]) {
    let (dst, rest) = dst.as_chunks_mut::<2>();
    assert!(rest.is_empty() && src.len() == dst.len(), "two bytes for every value");
    dispatch(Narrow { src, dst });
}

/// Compiled for the instruction set, though it is plain code.
struct Narrow<'a> {
    src: &'a [f32],
    dst: &'a mut [[u8; 2]],
}

impl Kernel for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (values, bytes) in self.src.chunks(CHUNK).zip(self.dst.chunks_mut(CHUNK)) {
            let mut is_nan = false;
            for (value, bytes) in values.iter().zip(&mut *bytes) {
                is_nan |= value.is_nan();
                *bytes = number_to_f16(*value).to_le_bytes();
            }
            if is_nan {
                for (value, bytes) in values.iter().zip(bytes) {
                    *bytes = f32_to_f16(*value).to_le_bytes();
                }
            }
        }
    }
}

/// [`f32_to_f16`] of anything but NaN, without a branch. The sum with a power of two that is `2^13` steps of the
/// half precision result (of the smallest exponent at least) is rounded by the hardware to just those steps, which
/// then are its low bits.
#[inline(always)]
pub(crate) fn number_to_f16(value: f32) -> u16 {
    /// Takes what is too large for half precision to infinity, and back what is not.
    const UP: f32 = f32::from_bits(0x7780_0000);
    const DOWN: f32 = f32::from_bits(0x0880_0000);
    /// Twice the bits of 2^-14, the smallest normal number.
    const SMALLEST: u32 = 0x7100_0000;
    const EXPONENT: u32 = 0xff00_0000;
    let scaled = value.abs() * UP * DOWN;
    let bits = value.to_bits();
    let exponent = (bits.wrapping_add(bits) & EXPONENT).max(SMALLEST);
    let sum = (f32::from_bits((exponent >> 1) + 0x0780_0000) + scaled).to_bits();
    (((bits >> 16) & 0x8000) | (((sum >> 13) & 0x7c00) + (sum & 0x0fff))) as u16
}

/// Little-endian bfloat16, at any alignment, to `f32`.
///
/// # Panics
/// If `src` is not two bytes for every value of `dst`.
pub fn bf16_bytes_to_f32(src: &[u8], dst: &mut [f32]) {
    let (src, rest) = src.as_chunks::<2>();
    assert!(rest.is_empty() && src.len() == dst.len(), "two bytes for every value");
    for (&bytes, value) in src.iter().zip(dst) {
        *value = bf16_to_f32(u16::from_le_bytes(bytes));
    }
}

/// `f32` to little-endian bfloat16.
///
/// # Panics
/// If `dst` is not two bytes for every value of `src`.
pub fn f32_to_bf16_bytes(src: &[f32], dst: &mut [u8]) {
    let (dst, rest) = dst.as_chunks_mut::<2>();
    assert!(rest.is_empty() && src.len() == dst.len(), "two bytes for every value");
    dispatch(Cut { src, dst });
}

/// Compiled for the instruction set, though it is plain code.
struct Cut<'a> {
    src: &'a [f32],
    dst: &'a mut [[u8; 2]],
}

impl Kernel for Cut<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (&value, bytes) in self.src.iter().zip(self.dst) {
            *bytes = f32_to_bf16(value).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern of 16 bits, as a file holds them.
    fn all() -> Vec<u8> {
        (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
    }

    fn bits(bytes: &[u8]) -> impl Iterator<Item = u16> {
        bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b))
    }

    #[test]
    fn every_half_survives_a_round_trip() {
        let (mut wide, mut back) = (vec![0.0; 1 << 16], vec![0; 1 << 17]);
        f16_bytes_to_f32(&all(), &mut wide);
        f32_to_f16_bytes(&wide, &mut back);
        for ((half, &wide), back) in (0..=u16::MAX).zip(&wide).zip(bits(&back)) {
            assert_eq!(wide.to_bits(), f16_to_f32(half).to_bits(), "{half:#06x}: bytes and single agree");
            assert_eq!(back, f32_to_f16(wide), "{half:#06x}: bytes and single agree");
            let quiet = if wide.is_nan() { half | 0x200 } else { half };
            assert_eq!(back, quiet, "{half:#06x}");
        }
    }

    #[test]
    fn every_bfloat_survives_a_round_trip() {
        let (mut wide, mut back) = (vec![0.0; 1 << 16], vec![0; 1 << 17]);
        bf16_bytes_to_f32(&all(), &mut wide);
        f32_to_bf16_bytes(&wide, &mut back);
        for ((bfloat, &wide), back) in (0..=u16::MAX).zip(&wide).zip(bits(&back)) {
            assert_eq!(
                wide.to_bits(),
                bf16_to_f32(bfloat).to_bits(),
                "{bfloat:#06x}: bytes and single agree"
            );
            let quiet = if wide.is_nan() { bfloat | 0x40 } else { bfloat };
            assert_eq!(back, quiet, "{bfloat:#06x}");
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        // Halfway between neighbours, just below and just above it.
        for (value, half) in [(1.0 + 0.5 / 1024.0, 0x3c00), (1.0 + 1.5 / 1024.0, 0x3c02), (65519.996, 0x7bff)]
        {
            assert_eq!(f32_to_f16(value), half, "{value}");
        }
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(
            f32_to_f16(f32::from_bits(0x3300_0000)),
            0,
            "2^-25 lies halfway between 0 and the smallest"
        );
        assert_eq!(f32_to_f16(f32::from_bits(0x3300_0001)), 1);
        for (bits, bfloat) in [(0x3f80_8000, 0x3f80), (0x3f81_8000, 0x3f82), (0x3f80_8001, 0x3f81)] {
            assert_eq!(f32_to_bf16(f32::from_bits(bits)), bfloat, "{bits:#x}");
        }
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0xff80_0001)), 0xffc0, "a NaN is never rounded to infinity");
    }

    /// Around every half and every midpoint between neighbours, beyond the range too.
    #[test]
    fn numbers_round_alike_without_a_branch() {
        for half in 0..=0x7c00 {
            let (value, next) = (f16_to_f32(half), f16_to_f32((half + 1).min(0x7c00)));
            for centre in [value, value + (next - value) / 2.0, 70000.0, f32::MAX, f32::from_bits(3)] {
                if !centre.is_nan() {
                    let steps = [centre, centre.next_up(), centre.next_down()];
                    for value in steps.into_iter().filter(|v| !v.is_nan()).flat_map(|v| [v, -v]) {
                        assert_eq!(number_to_f16(value), f32_to_f16(value), "{value:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn payloads_of_nan_survive_among_numbers() {
        let mut values = vec![1.5; 100];
        values[70] = f32::from_bits(0xff80_2001);
        let mut bytes = vec![0; 200];
        f32_to_f16_bytes(&values, &mut bytes);
        assert!(bits(&bytes).eq(values.iter().map(|&v| f32_to_f16(v))));
    }

    #[test]
    fn lengths_need_not_fill_a_chunk() {
        let values: Vec<f32> = (0..200).map(|i| (i as f32 - 77.3) * 0.37).collect();
        for len in [0, 1, CHUNK - 1, CHUNK + 1, 200] {
            let (values, mut bytes, mut back) = (&values[..len], vec![0; 2 * len], vec![0.0; len]);
            f32_to_f16_bytes(values, &mut bytes);
            assert!(bits(&bytes).eq(values.iter().map(|&v| f32_to_f16(v))), "{len}");
            f16_bytes_to_f32(&bytes, &mut back);
            assert!(bits(&bytes).map(f16_to_f32).eq(back), "{len}");
        }
    }
}
