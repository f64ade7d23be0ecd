//! `q5_k`: as `q4_k`, with 32 bytes between the scales and the nibbles whose bit `g` is the fifth bit of group `g`.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeMinimum, all_bits, join};
use super::k_scales::GroupScales;

/// Values are `d · scale · code - dmin · minimum`.
pub(in super::super) struct Q5K;

impl Format for Q5K {
    const TYPE: TensorType = TensorType::Q5K;
    const BYTES: usize = 176;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 0;
    type Kind = WholeMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scales = GroupScales::of(simd, block.load16(simd, 0));
        let high = block.load32(simd, 16);
        for group in 0..8 {
            let bytes = block.load32(simd, 48 + 32 * (group / 2));
            let low = all_bits(simd, bytes, 4 * (group as u32 % 2), 4);
            let codes = join(simd, low, &high, (group as u32, 1, 4));
            tray.put(simd, codes, scales.group(simd, group));
        }
    }
}
