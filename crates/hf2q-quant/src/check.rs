//! Whether blocks hold NaN or infinity, without decoding them where a scale decides.

use hf2q_gguf::TensorType;

use crate::layout::{
    iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1,
    q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq1_0, tq2_0,
};

/// A block that no quantizer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {index}: {what}")]
pub struct BadBlock {
    /// Number of the block (of the value, for types without blocks).
    pub index: usize,
    /// What is wrong with it.
    pub what: Fault,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A value is NaN or infinite.
    Value,
    /// The scale is NaN or infinite.
    Scale,
    /// The minimum, or the scale of the minimums, is NaN or infinite.
    Minimum,
    /// The bytes end within the block.
    CutShort,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Value => "a value is NaN or infinite",
            Self::Scale => "the scale is NaN or infinite",
            Self::Minimum => "the minimum is NaN or infinite",
            Self::CutShort => "the data ends within the block",
        })
    }
}

/// Looks for NaN and infinity in values, or in the scales that would make them so. Integer types pass.
///
/// # Errors
/// The first bad block.
pub fn check_blocks(ty: TensorType, src: &[u8]) -> Result<(), BadBlock> {
    match ty {
        TensorType::F32 => values(src, |b| u32::from_le_bytes(b) & 0x7f80_0000 == 0x7f80_0000),
        TensorType::F64 => values(src, |b| !f64::from_le_bytes(b).is_finite()),
        TensorType::F16 => values(src, |b| u16::from_le_bytes(b) & 0x7c00 == 0x7c00),
        TensorType::Bf16 => values(src, |b| u16::from_le_bytes(b) & 0x7f80 == 0x7f80),
        TensorType::Q4_0 => halves::<{ q4_0::BYTES }>(src, q4_0::D, None),
        TensorType::Q4_1 => halves::<{ q4_1::BYTES }>(src, q4_1::D, Some(q4_1::M)),
        TensorType::Q5_0 => halves::<{ q5_0::BYTES }>(src, q5_0::D, None),
        TensorType::Q5_1 => halves::<{ q5_1::BYTES }>(src, q5_1::D, Some(q5_1::M)),
        TensorType::Q8_0 => halves::<{ q8_0::BYTES }>(src, q8_0::D, None),
        TensorType::Q2K => halves::<{ q2_k::BYTES }>(src, q2_k::D, Some(q2_k::DMIN)),
        TensorType::Q3K => halves::<{ q3_k::BYTES }>(src, q3_k::D, None),
        TensorType::Q4K => halves::<{ q4_k::BYTES }>(src, q4_k::D, Some(q4_k::DMIN)),
        TensorType::Q5K => halves::<{ q5_k::BYTES }>(src, q5_k::D, Some(q5_k::DMIN)),
        TensorType::Q6K => halves::<{ q6_k::BYTES }>(src, q6_k::D, None),
        TensorType::Iq4Nl => halves::<{ iq4_nl::BYTES }>(src, iq4_nl::D, None),
        TensorType::Iq4Xs => halves::<{ iq4_xs::BYTES }>(src, iq4_xs::D, None),
        TensorType::Iq2Xxs => halves::<{ iq2_xxs::BYTES }>(src, iq2_xxs::D, None),
        TensorType::Iq2Xs => halves::<{ iq2_xs::BYTES }>(src, iq2_xs::D, None),
        TensorType::Iq3Xxs => halves::<{ iq3_xxs::BYTES }>(src, iq3_xxs::D, None),
        TensorType::Iq1S => halves::<{ iq1_s::BYTES }>(src, iq1_s::D, None),
        TensorType::Iq3S => halves::<{ iq3_s::BYTES }>(src, iq3_s::D, None),
        TensorType::Iq2S => halves::<{ iq2_s::BYTES }>(src, iq2_s::D, None),
        TensorType::Iq1M => blocks(src, |block| is_half_bad(iq1_m::d(block)).then_some(Fault::Scale)),
        TensorType::Tq1_0 => halves::<{ tq1_0::BYTES }>(src, tq1_0::D, None),
        TensorType::Tq2_0 => halves::<{ tq2_0::BYTES }>(src, tq2_0::D, None),
        TensorType::Mxfp4 => blocks(src, mxfp4_fault),
        _ => whole(src.len(), ty.block_bytes()),
    }
}

fn whole(len: usize, block: usize) -> Result<(), BadBlock> {
    if len.is_multiple_of(block) {
        Ok(())
    } else {
        Err(BadBlock { index: len / block, what: Fault::CutShort })
    }
}

/// Blocks that are one value. Whole strides are looked at without a branch per value.
fn values<const BYTES: usize>(src: &[u8], is_bad: impl Fn([u8; BYTES]) -> bool) -> Result<(), BadBlock> {
    const STRIDE: usize = 1024;
    for (number, part) in src.as_chunks().0.chunks(STRIDE).enumerate() {
        if !part.iter().fold(false, |any, &bytes| any | is_bad(bytes)) {
            continue;
        }
        let at = part.iter().position(|&bytes| is_bad(bytes)).expect("one of the stride is bad");
        return Err(BadBlock { index: number * STRIDE + at, what: Fault::Value });
    }
    whole(src.len(), BYTES)
}

/// NaN or infinite.
fn is_half_bad(half: u16) -> bool {
    half & 0x7c00 == 0x7c00
}

/// Blocks of integers under half precision scales: finite scales make finite values, for the largest half times
/// the largest integers of any format is far below the largest single.
fn halves<const BYTES: usize>(src: &[u8], scale: usize, minimum: Option<usize>) -> Result<(), BadBlock> {
    blocks::<BYTES>(src, |block| {
        let is_bad = |at: usize| is_half_bad(u16::from_le_bytes([block[at], block[at + 1]]));
        if is_bad(scale) {
            return Some(Fault::Scale);
        }
        minimum.is_some_and(is_bad).then_some(Fault::Minimum)
    })
}

/// The largest exponents overflow a single under some codes only.
fn mxfp4_fault(block: &[u8; mxfp4::BYTES]) -> Option<Fault> {
    const NAN: u8 = 255;
    const SAFE: u8 = 252;
    match block[mxfp4::E] {
        NAN => Some(Fault::Scale),
        0..=SAFE => None,
        _ => {
            let mut values = [0.0; mxfp4::LEN];
            mxfp4::dequantize_block(block, &mut values);
            values.iter().any(|v| !v.is_finite()).then_some(Fault::Value)
        }
    }
}

fn blocks<const BYTES: usize>(
    src: &[u8],
    fault: impl Fn(&[u8; BYTES]) -> Option<Fault>,
) -> Result<(), BadBlock> {
    for (index, block) in src.as_chunks().0.iter().enumerate() {
        if let Some(what) = fault(block) {
            return Err(BadBlock { index, what });
        }
    }
    whole(src.len(), BYTES)
}
