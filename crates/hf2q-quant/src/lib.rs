//! Stage 2: block formats: layout, quantize, dequantize.
//!
//! In: weights as `f32`, or blocks of a GGUF tensor type. Out: the other of the two, or the verdict that blocks
//! hold values no model should have.
//!
//! Decoding equals the reference dequantizer of the format bit for bit and encoding the reference quantizer
//! byte for byte. Everything here is serial: callers cut rows among threads.

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
