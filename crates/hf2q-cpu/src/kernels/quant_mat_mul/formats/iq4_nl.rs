//! `iq4_nl`: f16 scale, 16 bytes of nibbles that index a table.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, WholeSigned, look_up, nibbles};

/// Values are `scale · table[code]`.
pub(in super::super) struct Iq4Nl;

impl Format for Iq4Nl {
    const TYPE: TensorType = TensorType::Iq4Nl;
    const BYTES: usize = 18;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 0;
    type Kind = WholeSigned;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let scale = simd.half(block.load4(simd, 0));
        let codes = nibbles(simd, block.load16(simd, 2));
        tray.put(simd, look_up(simd, &sealed::<S>(), codes), [scale]);
    }
}

const TABLE: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The table as sealed codes.
#[inline(always)]
pub(super) fn sealed<S: Simd>() -> [u8; 16] {
    let mut table = [0; 16];
    for (sealed, value) in table.iter_mut().zip(TABLE) {
        *sealed = (value as u8).wrapping_add(S::SEAL);
    }
    table
}
