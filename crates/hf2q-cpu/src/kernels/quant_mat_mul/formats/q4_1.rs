//! `q4_1`: f16 scale, f16 minimum, 16 bytes of nibbles.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeMinimum, nibbles};

/// Values are `scale · code + minimum`.
pub(in super::super) struct Q4_1;

impl Format for Q4_1 {
    const TYPE: TensorType = TensorType::Q4_1;
    const BYTES: usize = 20;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 0;
    type Kind = WholeMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let header = block.load4(simd, 0);
        let floats = [simd.half(header), simd.half(simd.shr(header, 16))];
        tray.put(simd, nibbles(simd, block.load16(simd, 4)), floats);
    }
}
