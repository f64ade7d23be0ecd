//! Stage 2: block formats: layout, quantize, dequantize.
//!
//! In: weights as `f32`, or blocks of a GGUF tensor type. Out: the other of the two, or the verdict that blocks
//! hold values no model should have.
//!
//! Decoding equals the reference dequantizer of the format bit for bit and encoding the reference quantizer
//! byte for byte, with three exceptions where the reference would lose values that it was given:
//!
//! * A block whose importance is all zero is encoded as without importance, in all formats but `q4_1` and `q5_1`,
//!   where the reference keeps its values.
//! * An exponent of `mxfp4` of -1 wraps around to 255, which means NaN, in the reference. Here it becomes 0, the
//!   smallest there is.
//! * Values for which the reference writes a scale that is NaN or infinite are refused.
//!
//! Everything here is serial: callers cut rows among threads.

mod check;
mod direct;
mod dispatch;
mod error;
pub mod float8;
mod formats;
mod grids;
mod groups;
pub mod half;
pub mod kv;
mod lanes;
pub mod lattice;
pub mod layout;
mod levels;
mod search;
mod super_block;
mod weighted;

pub use check::{BadBlock, Fault, check_blocks};
pub use dispatch::{can_decode, can_encode, dequantize, encodable, quantize, quantize_weighted};
pub use error::QuantError;
