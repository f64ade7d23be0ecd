//! `q2_k`: 16 bytes with the 4-bit scale and minimum of each half, pairs of bits (64 bytes), f16 scale and minimum.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, HalfMinimum, Records, all_bits, bits, byte, splat};

/// Values are `d · scale · code - dmin · minimum`.
pub(in super::super) struct Q2K;

impl Format for Q2K {
    const TYPE: TensorType = TensorType::Q2K;
    const BYTES: usize = 84;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 0;
    type Kind = HalfMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let [.., tail] = block.load16(simd, 68);
        let d = simd.half(tail);
        let dmin = simd.mul(simd.half(simd.shr(tail, 16)), splat(simd, -1.0));
        let header = block.load16(simd, 0);
        for group in 0..8 {
            let pairs = block.load32(simd, 16 + 32 * (group / 4));
            let codes = all_bits(simd, pairs, 2 * (group as u32 % 4), 2);
            let scales = bits(simd, header[group / 2], 0, 4);
            let minimums = bits(simd, header[group / 2], 4, 4);
            let first = 2 * (group % 2);
            let floats = [
                simd.mul(d, simd.to_floats(byte(simd, scales, first))),
                simd.mul(d, simd.to_floats(byte(simd, scales, first + 1))),
                simd.mul(dmin, simd.to_floats(byte(simd, minimums, first))),
                simd.mul(dmin, simd.to_floats(byte(simd, minimums, first + 1))),
            ];
            tray.put(simd, codes, floats);
        }
    }
}
