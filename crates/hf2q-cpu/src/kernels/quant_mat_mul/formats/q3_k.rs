//! `q3_k`: third bits (32 bytes, bit `g` for group `g`), pairs of bits (64 bytes), 6-bit scales of 16 halves, f16 scale.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Half, Records, all_bits, byte, join};
use super::k_scales::joined;

/// Values are `d · (scale - 32) · (code - 4)`.
pub(in super::super) struct Q3K;

impl Format for Q3K {
    const TYPE: TensorType = TensorType::Q3K;
    const BYTES: usize = 110;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 4;
    type Kind = Half;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let d = simd.half(simd.shr(block.load16(simd, 94)[3], 16));
        let [_, low0, low1, high] = block.load16(simd, 92);
        let third = block.load32(simd, 0);
        let scales = [
            joined(simd, (low0, 0), (high, 0)),
            joined(simd, (low1, 0), (high, 2)),
            joined(simd, (low0, 4), (high, 4)),
            joined(simd, (low1, 4), (high, 6)),
        ];
        for group in 0..8 {
            let pairs = block.load32(simd, 32 + 32 * (group / 4));
            let low = all_bits(simd, pairs, 2 * (group as u32 % 4), 2);
            let codes = join(simd, low, &third, (group as u32, 1, 2));
            let (words, first) = (scales[group / 2], 2 * (group % 2));
            tray.put(simd, codes, [scale(simd, d, words, first), scale(simd, d, words, first + 1)]);
        }
    }
}

/// `d · (byte i - 32)`.
#[inline(always)]
fn scale<S: Simd>(simd: S, d: S::Floats, words: S::Words, i: usize) -> S::Floats {
    let stored = byte(simd, words, i);
    simd.mul(d, simd.to_floats(simd.add(stored, simd.splat(-32i32 as u32))))
}
