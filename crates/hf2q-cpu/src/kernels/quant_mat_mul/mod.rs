//! Matrix products of quantized weights and quantized activations.
//!
//! `out[i][c] = Σ_k weight[c][k] · x[i][k]`. A panel of neighbouring weight rows is unpacked from the file's own
//! layout into cache, a range of k at a time, and multiplied with every activation row. Integer sums inside a
//! group that shares a scale are exact; groups are added by one fused multiply-add each in ascending k, in one
//! accumulator per element. Neither the number of rows nor the range of columns nor the instruction set changes a
//! bit of the result.

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cells;
mod formats;
#[cfg(target_arch = "x86_64")]
mod many;
#[cfg(target_arch = "x86_64")]
mod octets;
mod output;
mod panel;
mod peak;
mod portable;
mod product;
#[cfg(target_arch = "x86_64")]
mod quantize_avx512;
mod simd;
mod single;
mod stream;
mod tile;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod vnni;

#[cfg(test)]
mod tests;

pub use activations::{GROUP, Picked, QuantRows, Row, RowOut, quantize_row};
pub use output::OutputRows;
pub(crate) use peak::dots;
pub use product::{PANEL, QuantMatMul, Scratch, in_octets, supports};
