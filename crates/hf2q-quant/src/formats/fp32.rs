//! `f32`: single precision, little-endian.

/// Only infinity and NaN are refused.
pub(crate) const LIMIT: f32 = f32::INFINITY;

pub(crate) fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (bytes, value) in src.as_chunks().0.iter().zip(dst) {
        *value = f32::from_le_bytes(*bytes);
    }
}

pub(crate) fn quantize(src: &[f32], dst: &mut [u8]) {
    for (value, bytes) in src.iter().zip(dst.as_chunks_mut().0) {
        *bytes = value.to_le_bytes();
    }
}
