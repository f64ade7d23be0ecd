//! Scales that formats of 256 weights share.

use super::super::simd::Simd;
use super::super::unpack::{bits, byte, splat};

/// The header of `q4_k` and `q5_k`: f16 scale, f16 minimum, then 6-bit scales and minimums of 8 groups in 12 bytes.
/// Bytes 0..4 hold the scales, bytes 4..8 the minimums of groups 0..4 in their low 6 bits; the nibbles of bytes
/// 8..12 are the low bits of the scales and minimums of groups 4..8, whose high bits are the top bits of the first
/// 8 bytes.
pub(super) struct GroupScales<S: Simd> {
    d: S::Floats,
    dmin: S::Floats,
    scales: [S::Words; 2],
    minimums: [S::Words; 2],
}

impl<S: Simd> GroupScales<S> {
    /// Takes the 16 bytes of a header apart.
    #[inline(always)]
    pub(super) fn of(simd: S, [head, a, b, c]: [S::Words; 4]) -> Self {
        Self {
            d: simd.half(head),
            dmin: simd.mul(simd.half(simd.shr(head, 16)), splat(simd, -1.0)),
            scales: [bits(simd, a, 0, 6), joined(simd, (c, 0), (a, 6))],
            minimums: [bits(simd, b, 0, 6), joined(simd, (c, 4), (b, 6))],
        }
    }

    /// Scale and (negative) minimum of a group; both products are exact.
    #[inline(always)]
    pub(super) fn group(&self, simd: S, group: usize) -> [S::Floats; 2] {
        let scale = byte(simd, self.scales[group / 4], group % 4);
        let minimum = byte(simd, self.minimums[group / 4], group % 4);
        [simd.mul(self.d, simd.to_floats(scale)), simd.mul(self.dmin, simd.to_floats(minimum))]
    }
}

/// Bytes of four low bits and, above them, two high bits, each from a bit of its own word on.
#[inline(always)]
pub(super) fn joined<S: Simd>(simd: S, low: (S::Words, u32), high: (S::Words, u32)) -> S::Words {
    simd.or(bits(simd, low.0, low.1, 4), simd.shl(bits(simd, high.0, high.1, 2), 4))
}

/// Byte `i` of every lane as a signed integer.
#[inline(always)]
pub(super) fn signed_byte<S: Simd>(simd: S, words: S::Words, i: usize) -> S::Words {
    simd.sar(simd.shl(words, 24 - 8 * i as u32), 24)
}
