//! Formats of keys and values in a cache: TurboQuant (Zandieh et al. 2025, arXiv 2504.19874) without its residual,
//! and int8.
//!
//! A vector of a head is cut into blocks of at most 256 values. A block is rotated ([`rotate`]), which makes its
//! values nearly normal; each is replaced by the nearest level of a Lloyd-Max quantizer of the normal distribution;
//! and one scale is kept, so that value `i` of the rotated block is `scale · values()[code i]`. The scale is
//! `⟨r, C⟩ / ⟨C, C⟩`, the least squares fit to the chosen levels, in half precision.
//!
//! What is here is scalar code and the definition. It is inlined into kernels, which compile it for their instruction
//! set: neither fused nor reordered, it gives the same codes everywhere.

pub mod codebook;
mod packing;
mod rotation;

pub use packing::{GROUP, Piece};
pub use rotation::{MAX_BLOCK, back_factors, rotate, rotate_back};

use crate::formats::q8_0;
use crate::half::{f16_to_f32, f32_to_f16};

/// Values that share a scale in int8.
pub const INT8_BLOCK: usize = q8_0::LEN;

/// Scales of larger vectors are cut to the largest number of half precision.
const LARGEST_SCALE: f32 = 65504.0;

/// The scale of a block that holds NaN or infinity, or whose length is beyond single precision: it decodes to NaN.
const NO_SCALE: u16 = 0x7e00;

/// The scale of codes that stand for themselves: 1 in half precision.
pub const UNIT_SCALE: u16 = 0x3c00;

/// Partial sums of a block.
const LANES: usize = 16;

/// TurboQuant of 2 to 6 and of 8 bits a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Turbo {
    /// 2 bits.
    Tq2,
    /// 3 bits.
    Tq3,
    /// 4 bits.
    Tq4,
    /// 5 bits.
    Tq5,
    /// 6 bits.
    Tq6,
    /// 8 bits.
    Tq8,
}

impl Turbo {
    /// All, fewest bits first.
    pub const ALL: [Self; 6] = [Self::Tq2, Self::Tq3, Self::Tq4, Self::Tq5, Self::Tq6, Self::Tq8];

    /// Bits of a code.
    #[inline(always)]
    pub fn bits(self) -> usize {
        match self {
            Self::Tq2 => 2,
            Self::Tq3 => 3,
            Self::Tq4 => 4,
            Self::Tq5 => 5,
            Self::Tq6 => 6,
            Self::Tq8 => 8,
        }
    }

    /// Encodes a block of 64, 128 or 256 values, which is left rotated; returns the scale as half precision bits.
    ///
    /// # Panics
    /// If the block has another length or `codes` not the same.
    #[inline(always)]
    pub fn encode(self, x: &mut [f32], codes: &mut [u8]) -> u16 {
        assert_eq!(x.len(), codes.len(), "a code for every value");
        rotate(x);
        let square = sum_of_squares(x);
        if !square.is_finite() || square == 0.0 {
            codes.fill(0);
            return if square == 0.0 { 0 } else { NO_SCALE };
        }
        let inverse = 1.0 / (square / x.len() as f32).sqrt();
        let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
        for (x, codes) in x.as_chunks::<LANES>().0.iter().zip(codes.as_chunks_mut::<LANES>().0) {
            let chosen = self.nearest(x, inverse, codes);
            for i in 0..LANES {
                products[i] += x[i] * chosen[i];
                squares[i] += chosen[i] * chosen[i];
            }
        }
        // The least squares fit to the chosen levels.
        f32_to_f16((fold(products) / fold(squares)).min(LARGEST_SCALE))
    }

    /// The same for a block whose values have a mean square of 1: codes alone, which [`UNIT_SCALE`] decodes. What is
    /// no number gets some code.
    ///
    /// # Panics
    /// If the block has another length or `codes` not the same.
    #[inline(always)]
    pub fn encode_unit(self, x: &mut [f32], codes: &mut [u8]) {
        assert_eq!(x.len(), codes.len(), "a code for every value");
        rotate(x);
        for (x, codes) in x.as_chunks::<LANES>().0.iter().zip(codes.as_chunks_mut::<LANES>().0) {
            self.nearest(x, 1.0, codes);
        }
    }

    /// Decodes a block in the rotated basis.
    ///
    /// # Panics
    /// If `out` and `codes` have other lengths, or a code has more bits than it should.
    #[inline(always)]
    pub fn decode_rotated(self, codes: &[u8], scale: u16, out: &mut [f32]) {
        assert_eq!(out.len(), codes.len(), "a code for every value");
        let (scale, values) = (f16_to_f32(scale), self.values());
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * values[usize::from(code)];
        }
    }

    /// Codes of the levels next to `inverse · x`, and the values that they stand for. A level is found by counting the
    /// thresholds that do not lie above, which all lanes do alike.
    #[inline(always)]
    fn nearest(self, x: &[f32; LANES], inverse: f32, codes: &mut [u8; LANES]) -> [f32; LANES] {
        let (levels, thresholds) = (self.levels(), self.thresholds());
        let (mut sizes, mut counts, mut chosen) = ([0.0; LANES], [0_u32; LANES], [levels[0]; LANES]);
        for i in 0..LANES {
            sizes[i] = x[i].abs() * inverse;
        }
        for (&threshold, &level) in thresholds.iter().zip(&levels[1..]) {
            for i in 0..LANES {
                let reached = sizes[i] >= threshold;
                counts[i] += u32::from(reached);
                chosen[i] = if reached { level } else { chosen[i] };
            }
        }
        for i in 0..LANES {
            let sign = x[i].to_bits() >> 31;
            codes[i] = (counts[i] | (sign * levels.len() as u32)) as u8;
            chosen[i] = f32::from_bits(chosen[i].to_bits() | (sign << 31));
        }
        chosen
    }
}

/// Encodes 32 values as signed bytes, as [`hf2q_gguf::TensorType::Q8_0`] does; returns the scale as half precision
/// bits. Of values that are not finite, or too large for it, the scale is not finite either.
#[inline(always)]
pub fn encode_int8(x: &[f32; INT8_BLOCK], codes: &mut [u8; INT8_BLOCK]) -> u16 {
    let mut block = [0; q8_0::BYTES];
    q8_0::quantize_block(x, &mut block);
    codes.copy_from_slice(&block[q8_0::QS]);
    u16::from_le_bytes([block[q8_0::D], block[q8_0::D + 1]])
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            sums[i] += x[i] * x[i];
        }
    }
    fold(sums)
}

/// Lane `i` plus lane `i + 8`, then 4, 2 and 1 apart.
#[inline(always)]
fn fold(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}
