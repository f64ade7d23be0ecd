//! `f16`: half precision, little-endian, rounded to nearest even.

/// Larger magnitudes would become infinite.
pub(crate) const LIMIT: f32 = super::F16_OVERFLOW;

pub(crate) use crate::half::{f16_bytes_to_f32 as dequantize, f32_to_f16_bytes as quantize};
