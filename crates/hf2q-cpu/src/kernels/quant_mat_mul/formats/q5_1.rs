//! `q5_1`: f16 scale, f16 minimum, 32 fifth bits, 16 bytes of nibbles.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeMinimum, fifth_bits, nibbles};

/// Values are `scale · code + minimum`.
pub(in super::super) struct Q5_1;

impl Format for Q5_1 {
    const TYPE: TensorType = TensorType::Q5_1;
    const BYTES: usize = 24;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 0;
    type Kind = WholeMinimum;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let [header, high, ..] = block.load16(simd, 0);
        let floats = [simd.half(header), simd.half(simd.shr(header, 16))];
        let low = nibbles(simd, block.load16(simd, 8));
        tray.put(simd, fifth_bits(simd, low, high), floats);
    }
}
