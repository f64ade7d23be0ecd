//! `q5_0`: f16 scale, 32 fifth bits, 16 bytes of nibbles.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, Whole, fifth_bits, nibbles};

/// Values are `scale · (code - 16)`.
pub(in super::super) struct Q5_0;

impl Format for Q5_0 {
    const TYPE: TensorType = TensorType::Q5_0;
    const BYTES: usize = 22;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 16;
    type Kind = Whole;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scale = simd.half(block.load4(simd, 0));
        let high = block.load4(simd, 2);
        let low = nibbles(simd, block.load16(simd, 6));
        tray.put(simd, fifth_bits(simd, low, high), [scale]);
    }
}
