//! `q4_0`: f16 scale, 16 bytes of nibbles.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, Whole, nibbles};

/// Values are `scale · (code - 8)`.
pub(in super::super) struct Q4_0;

impl Format for Q4_0 {
    const TYPE: TensorType = TensorType::Q4_0;
    const BYTES: usize = 18;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 8;
    type Kind = Whole;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scale = simd.half(block.load4(simd, 0));
        tray.put(simd, nibbles(simd, block.load16(simd, 2)), [scale]);
    }
}
