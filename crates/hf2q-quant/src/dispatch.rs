//! From a tensor type to the code of its format.

use hf2q_gguf::TensorType;

use crate::formats::{
    bf16, f16, fp32, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k,
    q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq1_0, tq2_0,
};
use crate::{QuantError, check_blocks};

/// Whether [`quantize`] has an encoder for `ty`.
pub fn can_encode(ty: TensorType) -> bool {
    encoder(ty).is_some()
}

/// Every type that [`quantize`] accepts, in the order of their ids.
pub fn encodable() -> impl Iterator<Item = TensorType> {
    TensorType::all().filter(|&ty| can_encode(ty))
}

/// Whether [`dequantize`] has a decoder for `ty`.
pub fn can_decode(ty: TensorType) -> bool {
    decoder(ty).is_some()
}

/// Decodes any number of whole blocks of `ty` (bytes, at any alignment) to as many values as they hold. The
/// values equal those of the format's reference dequantizer bit for bit; damaged blocks decode to whatever
/// their bits say, NaN and infinity included (see [`check_blocks`](crate::check_blocks)).
///
/// # Errors
/// [`QuantError::DecodeUnsupported`], [`QuantError::RaggedBytes`] or [`QuantError::OutputLength`]; `dst` is
/// then untouched.
pub fn dequantize(ty: TensorType, src: &[u8], dst: &mut [f32]) -> Result<(), QuantError> {
    let decode = decoder(ty).ok_or(QuantError::DecodeUnsupported { ty })?;
    let block = ty.block_bytes();
    if !src.len().is_multiple_of(block) {
        return Err(QuantError::RaggedBytes { ty, len: src.len(), block });
    }
    let expected = (src.len() / block).saturating_mul(ty.block_len());
    if expected != dst.len() {
        return Err(QuantError::OutputLength { ty, expected, found: dst.len() });
    }
    decode(src, dst);
    Ok(())
}

/// Encodes values as whole blocks of `ty` and appends them to `dst`, byte for byte what the format's reference
/// quantizer writes. Blocks do not depend on each other, so rows may be encoded in any grouping.
///
/// Two exceptions are deliberate: an exponent of `mxfp4` that wraps around to the one that means NaN becomes 0, and
/// values for which the reference writes a scale that is NaN or infinite are refused.
///
/// # Errors
/// [`QuantError::EncodeUnsupported`], [`QuantError::RaggedValues`], or for the first value that cannot be kept
/// [`QuantError::NotFinite`], [`QuantError::TooLarge`] or [`QuantError::ScaleOverflow`]; `dst` is then untouched.
pub fn quantize(ty: TensorType, src: &[f32], dst: &mut Vec<u8>) -> Result<(), QuantError> {
    let encoder = encoder(ty).ok_or(QuantError::EncodeUnsupported { ty })?;
    encode(ty, encoder.limit, (src, PART), dst, encoder.encode)
}

/// [`quantize`] of whole rows where errors of some columns matter more than those of others: `weights` holds the
/// importance of each column, so there are as many as a row has columns.
/// Types that cannot use weights (`f32`, `f16`, `bf16`, `q8_0`, `mxfp4`) are encoded as without, and so is a
/// block whose weights are all zero if the reference would lose its values.
///
/// # Errors
/// Those of [`quantize`], [`QuantError::RaggedRows`] or [`QuantError::BadWeight`]; `dst` is then untouched.
pub fn quantize_weighted(
    ty: TensorType,
    src: &[f32],
    weights: &[f32],
    dst: &mut Vec<u8>,
) -> Result<(), QuantError> {
    let encoder = encoder(ty).ok_or(QuantError::EncodeUnsupported { ty })?;
    let (len, columns, block) = (src.len(), weights.len(), ty.block_len());
    if !columns.is_multiple_of(block) {
        return Err(QuantError::RaggedValues { ty, len: columns, block });
    }
    if !len.is_multiple_of(columns) {
        return Err(QuantError::RaggedRows { len, columns });
    }
    if let Some(index) = weights.iter().position(|w| !(0.0..f32::INFINITY).contains(w)) {
        return Err(QuantError::BadWeight { index, value: weights[index] });
    }
    let Some(weighted) = encoder.weighted else { return quantize(ty, src, dst) };
    encode(ty, encoder.limit, (src, src.len()), dst, |src, dst| weighted(src, weights, dst))
}

/// Values encoded at a time, for them to be in the cache when they are looked at again. Whole batches of any
/// encoder.
const PART: usize = 1 << 14;

/// Encodes `part` values at a time.
fn encode(
    ty: TensorType,
    limit: f32,
    (src, part): (&[f32], usize),
    dst: &mut Vec<u8>,
    encode: impl Fn(&[f32], &mut [u8]),
) -> Result<(), QuantError> {
    let (len, block) = (src.len(), ty.block_len());
    let bytes = ty.row_bytes(len).ok_or(QuantError::RaggedValues { ty, len, block })?;
    let start = dst.len();
    dst.reserve(bytes);
    for (number, src) in src.chunks(part.max(1)).enumerate() {
        let (from, bytes) = (dst.len(), src.len() / block * ty.block_bytes());
        let encoded = refuse_from(ty, limit, src).and_then(|()| {
            dst.resize(from + bytes, 0);
            encode(src, &mut dst[from..]);
            refuse_scales(ty, src, &dst[from..])
        });
        if let Err(error) = encoded {
            dst.truncate(start);
            return Err(error.behind(number * part));
        }
    }
    Ok(())
}

/// Refuses blocks whose scale is NaN or infinite.
fn refuse_scales(ty: TensorType, src: &[f32], encoded: &[u8]) -> Result<(), QuantError> {
    let block = ty.block_len();
    if block == 1 {
        return Ok(());
    }
    check_blocks(ty, encoded).map_err(|bad| {
        let values = &src[bad.index * block..][..block];
        let at = (0..block).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs())).unwrap_or(0);
        QuantError::ScaleOverflow { ty, index: bad.index * block + at, value: values[at] }
    })
}

struct Encoder {
    /// The smallest magnitude whose encoding would be infinite, if that depends on the magnitude alone. Encoders
    /// whose scale is the outcome of a search take a magnitude that is surely too large, and mark a block they
    /// cannot encode by an infinite scale or NaN.
    limit: f32,
    /// Encodes finite values below the limit.
    encode: Encode,
    /// The same for rows of values with the weights of their columns; `None` if the format ignores weights.
    weighted: Option<EncodeWeighted>,
}

type Encode = fn(&[f32], &mut [u8]);
type EncodeWeighted = fn(&[f32], &[f32], &mut [u8]);

fn encoder(ty: TensorType) -> Option<Encoder> {
    let (limit, encode, weighted): (f32, Encode, Option<EncodeWeighted>) = match ty {
        TensorType::F32 => (fp32::LIMIT, fp32::quantize, None),
        TensorType::F16 => (f16::LIMIT, f16::quantize, None),
        TensorType::Bf16 => (bf16::LIMIT, bf16::quantize, None),
        TensorType::Q4_0 => (q4_0::LIMIT, q4_0::quantize, Some(q4_0::quantize_weighted)),
        TensorType::Q4_1 => (f32::INFINITY, q4_1::quantize, Some(q4_1::quantize_weighted)),
        TensorType::Q5_0 => (q5_0::LIMIT, q5_0::quantize, Some(q5_0::quantize_weighted)),
        TensorType::Q5_1 => (f32::INFINITY, q5_1::quantize, Some(q5_1::quantize_weighted)),
        TensorType::Q8_0 => (q8_0::LIMIT, q8_0::quantize, None),
        TensorType::Q2K => (f32::INFINITY, q2_k::quantize, Some(q2_k::quantize_weighted)),
        TensorType::Q3K => (f32::INFINITY, q3_k::quantize, Some(q3_k::quantize_weighted)),
        TensorType::Q4K => (f32::INFINITY, q4_k::quantize, Some(q4_k::quantize_weighted)),
        TensorType::Q5K => (f32::INFINITY, q5_k::quantize, Some(q5_k::quantize_weighted)),
        TensorType::Q6K => (f32::INFINITY, q6_k::quantize, Some(q6_k::quantize_weighted)),
        TensorType::Iq4Nl => (iq4_nl::LIMIT, iq4_nl::quantize, Some(iq4_nl::quantize_weighted)),
        TensorType::Iq4Xs => (iq4_xs::LIMIT, iq4_xs::quantize, Some(iq4_xs::quantize_weighted)),
        TensorType::Mxfp4 => (mxfp4::LIMIT, mxfp4::quantize, None),
        _ => return None,
    };
    Some(Encoder { limit, encode, weighted })
}

type Decode = fn(&[u8], &mut [f32]);

fn decoder(ty: TensorType) -> Option<Decode> {
    Some(match ty {
        TensorType::F32 => fp32::dequantize,
        TensorType::F16 => f16::dequantize,
        TensorType::Bf16 => bf16::dequantize,
        TensorType::Q4_0 => |b, out| decode_blocks(b, out, q4_0::dequantize_block),
        TensorType::Q4_1 => |b, out| decode_blocks(b, out, q4_1::dequantize_block),
        TensorType::Q5_0 => |b, out| decode_blocks(b, out, q5_0::dequantize_block),
        TensorType::Q5_1 => |b, out| decode_blocks(b, out, q5_1::dequantize_block),
        TensorType::Q8_0 => |b, out| decode_blocks(b, out, q8_0::dequantize_block),
        TensorType::Q2K => |b, out| decode_blocks(b, out, q2_k::dequantize_block),
        TensorType::Q3K => |b, out| decode_blocks(b, out, q3_k::dequantize_block),
        TensorType::Q4K => |b, out| decode_blocks(b, out, q4_k::dequantize_block),
        TensorType::Q5K => |b, out| decode_blocks(b, out, q5_k::dequantize_block),
        TensorType::Q6K => |b, out| decode_blocks(b, out, q6_k::dequantize_block),
        TensorType::Iq4Nl => |b, out| decode_blocks(b, out, iq4_nl::dequantize_block),
        TensorType::Iq4Xs => |b, out| decode_blocks(b, out, iq4_xs::dequantize_block),
        TensorType::Iq2Xxs => |b, out| decode_blocks(b, out, iq2_xxs::dequantize_block),
        TensorType::Iq2Xs => |b, out| decode_blocks(b, out, iq2_xs::dequantize_block),
        TensorType::Iq3Xxs => |b, out| decode_blocks(b, out, iq3_xxs::dequantize_block),
        TensorType::Iq1S => |b, out| decode_blocks(b, out, iq1_s::dequantize_block),
        TensorType::Iq3S => |b, out| decode_blocks(b, out, iq3_s::dequantize_block),
        TensorType::Iq2S => |b, out| decode_blocks(b, out, iq2_s::dequantize_block),
        TensorType::Iq1M => |b, out| decode_blocks(b, out, iq1_m::dequantize_block),
        TensorType::Tq1_0 => |b, out| decode_blocks(b, out, tq1_0::dequantize_block),
        TensorType::Tq2_0 => |b, out| decode_blocks(b, out, tq2_0::dequantize_block),
        TensorType::Mxfp4 => |b, out| decode_blocks(b, out, mxfp4::dequantize_block),
        _ => return None,
    })
}

fn decode_blocks<const BYTES: usize, const LEN: usize>(
    src: &[u8],
    dst: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        decode(block, out);
    }
}

/// Refuses NaN, infinity and magnitudes from `limit` on.
pub(crate) fn refuse_from(ty: TensorType, limit: f32, src: &[f32]) -> Result<(), QuantError> {
    /// Values looked at before the search for the culprit may start.
    const STRIDE: usize = 1024;
    for (number, part) in src.chunks(STRIDE).enumerate() {
        // Magnitudes are ordered as their bits are, with infinity and NaN above all others.
        if magnitude_bits(part) < limit.to_bits() {
            continue;
        }
        let at = part
            .iter()
            .position(|v| v.abs().to_bits() >= limit.to_bits())
            .expect("the largest magnitude is one of the part");
        let (index, value) = (number * STRIDE + at, part[at]);
        return Err(if value.is_finite() {
            QuantError::TooLarge { ty, index, value, limit }
        } else {
            QuantError::NotFinite { index, value }
        });
    }
    Ok(())
}

/// The bits of the largest magnitude; those of a NaN if there is one.
fn magnitude_bits(x: &[f32]) -> u32 {
    x.iter().fold(0, |most: i32, v| most.max(v.abs().to_bits() as i32)) as u32
}
