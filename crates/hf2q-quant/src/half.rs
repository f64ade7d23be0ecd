//! Half precision and bfloat16: single values, slices, and the little-endian bytes of files.
//!
//! Conversions to 16 bits round to nearest, ties to even; magnitudes beyond the range become infinite. NaN
//! stays NaN and is made quiet.

use ::half::f16;
use ::half::slice::HalfFloatSliceExt;

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
pub fn f32_to_bf16(value: f32) -> u16 {
    const QUIET: u32 = 0x40;
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let upper = if value.is_nan() { (bits >> 16) | QUIET } else { rounded >> 16 };
    upper as u16
}

/// Half precision bits to `f32`.
///
/// # Panics
/// If the lengths differ.
pub fn f16_slice_to_f32(src: &[u16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "one output for every input");
    for (bits, values) in src.chunks(CHUNK).zip(dst.chunks_mut(CHUNK)) {
        let mut halves = [f16::ZERO; CHUNK];
        for (half, &bits) in halves.iter_mut().zip(bits) {
            *half = f16::from_bits(bits);
        }
        halves[..values.len()].convert_to_f32_slice(values);
    }
}

/// `f32` to half precision bits.
///
/// # Panics
/// If the lengths differ.
pub fn f32_slice_to_f16(src: &[f32], dst: &mut [u16]) {
    assert_eq!(src.len(), dst.len(), "one output for every input");
    for (values, bits) in src.chunks(CHUNK).zip(dst.chunks_mut(CHUNK)) {
        let mut halves = [f16::ZERO; CHUNK];
        halves[..values.len()].convert_from_f32_slice(values);
        for (bits, half) in bits.iter_mut().zip(halves) {
            *bits = half.to_bits();
        }
    }
}

/// bfloat16 bits to `f32`.
///
/// # Panics
/// If the lengths differ.
pub fn bf16_slice_to_f32(src: &[u16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "one output for every input");
    for (&bits, value) in src.iter().zip(dst) {
        *value = bf16_to_f32(bits);
    }
}

/// `f32` to bfloat16 bits.
///
/// # Panics
/// If the lengths differ.
pub fn f32_slice_to_bf16(src: &[f32], dst: &mut [u16]) {
    assert_eq!(src.len(), dst.len(), "one output for every input");
    for (&value, bits) in src.iter().zip(dst) {
        *bits = f32_to_bf16(value);
    }
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
    for (values, bytes) in src.chunks(CHUNK).zip(dst.chunks_mut(CHUNK)) {
        let mut halves = [f16::ZERO; CHUNK];
        halves[..values.len()].convert_from_f32_slice(values);
        for (bytes, half) in bytes.iter_mut().zip(halves) {
            *bytes = half.to_le_bytes();
        }
    }
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
    for (&value, bytes) in src.iter().zip(dst) {
        *bytes = f32_to_bf16(value).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_a_round_trip() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (mut wide, mut back) = (vec![0.0; all.len()], vec![0; all.len()]);
        f16_slice_to_f32(&all, &mut wide);
        f32_slice_to_f16(&wide, &mut back);
        for ((&bits, &wide), back) in all.iter().zip(&wide).zip(back) {
            assert_eq!(wide.to_bits(), f16_to_f32(bits).to_bits(), "{bits:#06x}: slice and single agree");
            assert_eq!(back, f32_to_f16(wide), "{bits:#06x}: slice and single agree");
            let quiet = if wide.is_nan() { bits | 0x200 } else { bits };
            assert_eq!(back, quiet, "{bits:#06x}");
        }
    }

    #[test]
    fn every_bfloat_survives_a_round_trip() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (mut wide, mut back) = (vec![0.0; all.len()], vec![0; all.len()]);
        bf16_slice_to_f32(&all, &mut wide);
        f32_slice_to_bf16(&wide, &mut back);
        for ((&bits, &wide), back) in all.iter().zip(&wide).zip(back) {
            let quiet = if wide.is_nan() { bits | 0x40 } else { bits };
            assert_eq!(back, quiet, "{bits:#06x}");
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

    #[test]
    fn bytes_agree_with_slices() {
        let values: Vec<f32> = (0..200).map(|i| (i as f32 - 77.3) * 0.37).collect();
        let (mut bytes, mut bits, mut back) = (vec![0; 400], vec![0; 200], vec![0.0; 200]);
        f32_to_f16_bytes(&values, &mut bytes);
        f32_slice_to_f16(&values, &mut bits);
        assert_eq!(bytes, bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>());
        f16_bytes_to_f32(&bytes, &mut back);
        assert_eq!(back, bits.iter().map(|&b| f16_to_f32(b)).collect::<Vec<_>>());
        f32_to_bf16_bytes(&values, &mut bytes);
        f32_slice_to_bf16(&values, &mut bits);
        assert_eq!(bytes, bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>());
        bf16_bytes_to_f32(&bytes, &mut back);
        assert_eq!(back, bits.iter().map(|&b| bf16_to_f32(b)).collect::<Vec<_>>());
    }
}
