//! `q8_0`: f16 scale, 32 signed bytes.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeSigned};

/// Values are `scale · code`.
pub(in super::super) struct Q8_0;

impl Format for Q8_0 {
    const TYPE: TensorType = TensorType::Q8_0;
    const BYTES: usize = 34;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 0;
    type Kind = WholeSigned;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scale = simd.half(block.load4(simd, 0));
        let mut codes = block.load32(simd, 2);
        for four in &mut codes {
            *four = simd.seal(*four);
        }
        tray.put(simd, codes, [scale]);
    }
}
