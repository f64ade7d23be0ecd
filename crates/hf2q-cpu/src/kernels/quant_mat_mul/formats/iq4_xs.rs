//! `iq4_xs`: f16 scale, 6-bit scales of 8 groups in two parts, 128 bytes of nibbles that index a table.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeSigned, look_up, nibbles};
use super::iq4_nl::sealed;

/// Values are `scale · (group scale - 32) · table[code]`.
pub(in super::super) struct Iq4Xs;

impl Format for Iq4Xs {
    const TYPE: TensorType = TensorType::Iq4Xs;
    const BYTES: usize = 136;
    const RECORDS: usize = 8;
    const OFFSET: i32 = 0;
    type Kind = WholeSigned;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let [head, low, ..] = block.load16(simd, 0);
        let d = simd.half(head);
        for group in 0..8u32 {
            let low = simd.and(simd.shr(low, 4 * group), simd.splat(15));
            let high = simd.and(simd.shr(head, 16 + 2 * group), simd.splat(3));
            let scale = simd.add(simd.or(low, simd.shl(high, 4)), simd.splat(-32i32 as u32));
            let codes = nibbles(simd, block.load16(simd, 8 + 16 * group as usize));
            let codes = look_up(simd, &sealed::<S>(), codes);
            tray.put(simd, codes, [simd.mul(d, simd.to_floats(scale))]);
        }
    }
}
