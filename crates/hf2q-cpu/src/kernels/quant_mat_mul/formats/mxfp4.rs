//! `mxfp4`: a power of two, 16 bytes of nibbles that are E2M1 floats.

use hf2q_gguf::TensorType;

use super::super::simd::Simd;
use super::super::unpack::{Block, Format, Records, Whole, byte, look_up, nibbles};

/// Values are `scale · (table[code] - 16)`, where the table holds twice the float, plus 16.
pub(in super::super) struct Mxfp4;

impl Format for Mxfp4 {
    const TYPE: TensorType = TensorType::Mxfp4;
    const BYTES: usize = 17;
    const RECORDS: usize = 1;
    const OFFSET: i32 = 16;
    type Kind = Whole;

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>) {
        let exponent = byte(simd, block.load16(simd, 0)[0], 0);
        let codes = nibbles(simd, block.load16(simd, 1));
        tray.put(simd, look_up(simd, &TABLE, codes), [half_power(simd, exponent)]);
    }
}

const TABLE: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// `2^(exponent - 128)`: the exponent field is one less than stored, and below 2 the value is subnormal, which
/// the larger of both bit patterns selects.
#[inline(always)]
fn half_power<S: Simd>(simd: S, exponent: S::Words) -> S::Floats {
    let normal = simd.shl(simd.add(exponent, simd.splat(u32::MAX)), 23);
    let odd = simd.and(exponent, simd.splat(1));
    let subnormal = simd.add(simd.shl(odd, 21), simd.splat(1 << 21));
    simd.as_floats(simd.max(normal, subnormal))
}
