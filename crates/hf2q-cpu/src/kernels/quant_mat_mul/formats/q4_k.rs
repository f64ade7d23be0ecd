//! `q4_k`: f16 scale and minimum, 6-bit scales and minimums of 8 groups, 128 bytes of nibbles: the low nibbles of
//! 32 bytes are one group, the high nibbles the next.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeMinimum, all_bits};
use super::k_scales::GroupScales;

/// Values are `d · scale · code - dmin · minimum`.
pub(in super::super) struct Q4K;

impl Format for Q4K {
    const TYPE: TensorType = TensorType::Q4K;
    const BYTES: usize = 144;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 0;
    type Kind = WholeMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scales = GroupScales::of(simd, block.load16(simd, 0));
        for pair in 0..4 {
            let bytes = block.load32(simd, 16 + 32 * pair);
            tray.put(simd, all_bits(simd, bytes, 0, 4), scales.group(simd, 2 * pair));
            tray.put(simd, all_bits(simd, bytes, 4, 4), scales.group(simd, 2 * pair + 1));
        }
    }
}
