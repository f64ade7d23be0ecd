//! Random weights of every tensor type that backends compute with.

use hf2q_gguf::TensorType;
use hf2q_quant::half::{f32_to_bf16, f32_to_f16};
use hf2q_quant::layout::{iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

use crate::random::Random;

/// Types that are converted but not computed with: a backend may refuse them.
const ONLY_STORED: [TensorType; 9] = [
    TensorType::Iq2Xxs,
    TensorType::Iq2Xs,
    TensorType::Iq3Xxs,
    TensorType::Iq1S,
    TensorType::Iq3S,
    TensorType::Iq2S,
    TensorType::Iq1M,
    TensorType::Tq1_0,
    TensorType::Tq2_0,
];

/// Types that a matrix may have.
pub(crate) fn types() -> impl Iterator<Item = TensorType> {
    TensorType::all().filter(|ty| hf2q_quant::can_decode(*ty) && !ONLY_STORED.contains(ty))
}

/// Whether a type has scales that activations are quantized for.
pub(crate) fn is_quantized(ty: TensorType) -> bool {
    ty.block_len() > 1
}

/// Bytes of `len` values, a multiple of the block: float types hold normal numbers, blocks hold random codes with
/// scales that make the values about as large.
pub(crate) fn random(ty: TensorType, len: usize, random: &mut Random) -> Vec<u8> {
    match ty {
        TensorType::F32 => (0..len).flat_map(|_| random.normal().to_le_bytes()).collect(),
        TensorType::F16 => (0..len).flat_map(|_| f32_to_f16(random.normal()).to_le_bytes()).collect(),
        TensorType::Bf16 => (0..len).flat_map(|_| f32_to_bf16(random.normal()).to_le_bytes()).collect(),
        _ => {
            let bytes = len / ty.block_len() * ty.block_bytes();
            let mut data: Vec<u8> = (0..bytes).map(|_| random.byte()).collect();
            for block in data.chunks_exact_mut(ty.block_bytes()) {
                set_scales(ty, block, random);
            }
            data
        }
    }
}

/// Overwrites the scales of a block of random bytes. `typical` is what brings the block's largest value to about 3.
fn set_scales(ty: TensorType, block: &mut [u8], random: &mut Random) {
    let mut half = |at: usize, typical: f32| {
        let scale = typical * (1.0 + 0.5 * random.symmetric());
        block[at..at + 2].copy_from_slice(&f32_to_f16(scale).to_le_bytes());
    };
    match ty {
        TensorType::Q4_0 => half(q4_0::D, -3.0 / 8.0),
        TensorType::Q4_1 => {
            half(q4_1::D, 6.0 / 15.0);
            half(q4_1::M, -3.0);
        }
        TensorType::Q5_0 => half(q5_0::D, 3.0 / 16.0),
        TensorType::Q5_1 => {
            half(q5_1::D, 6.0 / 31.0);
            half(q5_1::M, -3.0);
        }
        TensorType::Q8_0 => half(q8_0::D, 3.0 / 127.0),
        TensorType::Q2K => {
            half(q2_k::D, 6.0 / (15.0 * 3.0));
            half(q2_k::DMIN, 3.0 / 15.0);
        }
        TensorType::Q3K => half(q3_k::D, 3.0 / (32.0 * 4.0)),
        TensorType::Q4K => {
            half(q4_k::D, 6.0 / (63.0 * 15.0));
            half(q4_k::DMIN, 3.0 / 63.0);
        }
        TensorType::Q5K => {
            half(q5_k::D, 6.0 / (63.0 * 31.0));
            half(q5_k::DMIN, 3.0 / 63.0);
        }
        TensorType::Q6K => half(q6_k::D, 3.0 / (128.0 * 32.0)),
        TensorType::Iq4Nl => half(iq4_nl::D, 3.0 / 127.0),
        TensorType::Iq4Xs => half(iq4_xs::D, 3.0 / (127.0 * 32.0)),
        // Exponents around 1/2.
        TensorType::Mxfp4 => block[mxfp4::E] = 125 + random.byte() % 4,
        _ => {}
    }
}

/// `len` values that an int8 code per 32 values holds without error: multiples of a power of two of which one in
/// each 32 is 127 times it.
pub(crate) fn representable(len: usize, random: &mut Random) -> Vec<f32> {
    let mut values = vec![0.0; len];
    for group in values.chunks_mut(32) {
        let unit = [1.0 / 64.0, 1.0 / 128.0, 1.0 / 32.0][random.below(3)];
        for x in group.iter_mut() {
            *x = unit * (random.below(255) as f32 - 127.0);
        }
        let at = random.below(group.len());
        group[at] = if random.chance(50) { 127.0 * unit } else { -127.0 * unit };
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_blocks_are_sane_and_of_one_size() {
        let mut r = Random::new("blocks", 1);
        for ty in types() {
            let bytes = random(ty, 1024, &mut r);
            assert_eq!(hf2q_quant::check_blocks(ty, &bytes), Ok(()), "{ty}");
            let mut values = vec![0.0; 1024];
            hf2q_quant::dequantize(ty, &bytes, &mut values).unwrap();
            let mean_square = values.iter().map(|x| x * x).sum::<f32>() / 1024.0;
            assert!((0.2..12.0).contains(&mean_square), "{ty}: {mean_square}");
        }
    }
}
