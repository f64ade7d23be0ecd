//! `q4_1`: f16 scale, f16 minimum, 16 bytes of nibbles.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Tray, WholeMinimum, nibbles};

/// Values are `scale · code + minimum`.
pub(in super::super) struct Q4_1;

impl Format for Q4_1 {
    const TYPE: TensorType = TensorType::Q4_1;
    const OFFSET: i32 = 0;
    type Kind = WholeMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut Tray<'_>) {
        let header = block.load16(simd, 0)[0];
        let floats = [simd.half(header), simd.half(simd.shr(header, 16))];
        tray.put(simd, nibbles(simd, block.load16(simd, 4)), floats);
    }
}
