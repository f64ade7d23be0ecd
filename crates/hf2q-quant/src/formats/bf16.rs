//! `bf16`: the upper half of a single, little-endian, rounded to nearest even.

/// Halfway from the largest bfloat16 to the next power of two: larger magnitudes would become infinite.
pub(crate) const LIMIT: f32 = f32::from_bits(0x7f7f_8000);

pub(crate) use crate::half::{bf16_bytes_to_f32 as dequantize, f32_to_bf16_bytes as quantize};
