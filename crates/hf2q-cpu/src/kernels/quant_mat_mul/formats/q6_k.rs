//! `q6_k`: low nibbles (128 bytes), high pairs of bits (64 bytes), 16 signed scales, f16 scale. Of each 128 weights,
//! group `g` has nibbles `g / 2` of bytes `32 · (g % 2) ..` and bits `2g` of the 32 bytes of pairs.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Half, Records, all_bits, join};
use super::k_scales::signed_byte;

/// Values are `d · scale · (code - 32)`.
pub(in super::super) struct Q6K;

impl Format for Q6K {
    const TYPE: TensorType = TensorType::Q6K;
    const BYTES: usize = 210;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 32;
    type Kind = Half;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let d = simd.half(simd.shr(block.load4(simd, 206), 16));
        let scales = block.load16(simd, 192);
        for part in 0..2 {
            let pairs = block.load32(simd, 128 + 32 * part);
            let low = [block.load32(simd, 64 * part), block.load32(simd, 64 * part + 32)];
            for group in 0..4 {
                let nibbles = all_bits(simd, low[group % 2], 4 * (group as u32 / 2), 4);
                let codes = join(simd, nibbles, &pairs, (2 * group as u32, 2, 4));
                let (words, first) = (scales[2 * part + group / 2], 2 * (group % 2));
                let floats = [
                    simd.mul(d, simd.to_floats(signed_byte(simd, words, first))),
                    simd.mul(d, simd.to_floats(signed_byte(simd, words, first + 1))),
                ];
                tray.put(simd, codes, floats);
            }
        }
    }
}
