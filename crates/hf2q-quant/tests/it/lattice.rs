//! Weights as training for `q4_0` leaves them, and weights that only look like any others.

use std::path::Path;

use hf2q_gguf::TensorType;
use hf2q_quant::half::{bf16_bytes_to_f32, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use hf2q_quant::lattice::{self, Evidence, Fit};
use hf2q_quant::{QuantError, quantize};
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};

use crate::input::{Numbers, decode};

const LEN: usize = 32;

fn bf16(v: f32) -> f32 {
    bf16_to_f32(f32_to_bf16(v))
}

fn f16(v: f32) -> f32 {
    f16_to_f32(f32_to_f16(v))
}

/// Roughly normal, of standard deviation 0.02, and heavier at the ends as weights are.
fn weights(seed: u64, count: usize) -> Vec<f32> {
    let mut numbers = Numbers(seed);
    let mut uniform = || (numbers.next() >> 40) as f32 / (1 << 24) as f32;
    let mut normal = || (0..12).map(|_| uniform()).sum::<f32>() - 6.0;
    (0..count).map(|_| 0.02 * normal() * (1.0 + 0.3 * normal().abs())).collect()
}

/// How a training run snaps a block: its step, and the smallest and largest code.
#[derive(Clone, Copy, Debug)]
enum Quantizer {
    /// The value of the largest magnitude gets code -8, as in the ordinary encoder.
    Extreme,
    /// Codes -7..=7 over the largest magnitude.
    Symmetric,
    /// 15 steps over twice the largest magnitude, codes -8..=7.
    Half,
    /// 15 steps from the smallest to the largest value, where that needs no other codes.
    Range,
    /// A wide step that uses few codes.
    Wide,
}

const QUANTIZERS: [Quantizer; 5] =
    [Quantizer::Extreme, Quantizer::Symmetric, Quantizer::Half, Quantizer::Range, Quantizer::Wide];

impl Quantizer {
    fn step(self, x: &[f32]) -> f32 {
        let extreme = x.iter().copied().fold(0.0f32, |m, v| if v.abs() > m.abs() { v } else { m });
        let range = x.iter().copied().fold(f32::MIN, f32::max) - x.iter().copied().fold(f32::MAX, f32::min);
        match self {
            Self::Extreme => extreme / -8.0,
            Self::Symmetric => extreme.abs() / 7.0,
            Self::Half => extreme.abs() / 7.5,
            Self::Range => range / 15.0,
            Self::Wide => extreme.abs() / 2.6,
        }
    }

    fn snap(self, x: &[f32], scale: fn(f32) -> f32) -> Vec<f32> {
        x.chunks(LEN)
            .flat_map(|x| {
                let d = scale(self.step(x));
                x.iter().map(move |v| bf16((v / d).round().clamp(-8.0, 7.0) * d)).collect::<Vec<_>>()
            })
            .collect()
    }
}

fn encode(values: &[f32]) -> (Vec<u8>, Fit) {
    let mut out = Vec::new();
    let fit = lattice::quantize(values, &mut out).expect("finite values of whole blocks");
    (out, fit)
}

fn ordinary(values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    quantize(TensorType::Q4_0, values, &mut out).expect("finite values of whole blocks");
    out
}

/// Blocks that decode to the same bf16 values.
fn exact(values: &[f32], blocks: &[u8]) -> u64 {
    let decoded = decode(TensorType::Q4_0, blocks);
    let same = |(x, y): (&[f32], &[f32])| x.iter().zip(y).all(|(&x, &y)| bf16(x) == bf16(y));
    values.chunks(LEN).zip(decoded.chunks(LEN)).filter(|&pair| same(pair)).count() as u64
}

fn squared_error(values: &[f32], blocks: &[u8]) -> f64 {
    let decoded = decode(TensorType::Q4_0, blocks);
    values.iter().zip(decoded).map(|(&x, y)| f64::from(x - y).powi(2)).sum()
}

#[test]
fn bf16_scales_are_recovered() {
    for quantizer in QUANTIZERS {
        let values = quantizer.snap(&weights(1, 512 * LEN), bf16);
        assert!(lattice::detect(&values), "{quantizer:?}");
        let (blocks, fit) = encode(&values);
        assert_eq!(fit, Fit { blocks: 512, exact: 512 }, "{quantizer:?}");
        assert_eq!(exact(&values, &blocks), 512, "{quantizer:?}");
    }
}

#[test]
fn half_scales_are_recovered() {
    for quantizer in QUANTIZERS {
        let values = quantizer.snap(&weights(2, 512 * LEN), f16);
        assert!(lattice::detect(&values), "{quantizer:?}");
        assert_eq!(encode(&values).1, Fit { blocks: 512, exact: 512 }, "{quantizer:?}");
    }
}

#[test]
fn single_scales_are_nearly_recovered() {
    for quantizer in QUANTIZERS {
        let values = quantizer.snap(&weights(3, 512 * LEN), |d| d);
        assert!(lattice::detect(&values), "{quantizer:?}");
        let (blocks, fit) = encode(&values);
        assert_eq!(fit.exact, exact(&values, &blocks), "{quantizer:?}: what is said to be exact is");
        assert!(fit.exact > 300, "{quantizer:?}: {fit:?}");
        let decoded = decode(TensorType::Q4_0, &blocks);
        for (x, y) in values.iter().zip(decoded) {
            assert!((x - y).abs() <= x.abs() / 170.0, "{quantizer:?}: {x} became {y}: its code moved");
        }
    }
}

#[test]
fn the_ordinary_encoder_moves_codes() {
    let share = |quantizer: Quantizer| {
        let values = quantizer.snap(&weights(1, 512 * LEN), bf16);
        let (naive, (found, _)) = (ordinary(&values), encode(&values));
        assert!(squared_error(&values, &found) <= squared_error(&values, &naive), "{quantizer:?}");
        exact(&values, &naive)
    };
    assert_eq!(share(Quantizer::Extreme), 512, "made for it");
    assert!(share(Quantizer::Half) < 300);
    assert_eq!(share(Quantizer::Symmetric), 0);
    assert_eq!(share(Quantizer::Wide), 0);
}

#[test]
fn zeros_and_few_values() {
    let step = bf16(0.0123);
    let spread = |codes: &[f32]| -> Vec<f32> {
        (0..LEN).map(|i| bf16(step * codes.get(i * 7 % LEN).copied().unwrap_or(0.0))).collect()
    };
    let blocks = [
        &[][..],
        &[1.0],
        &[-1.0],
        &[-8.0],
        &[7.0, -7.0],
        &[3.0, 6.0],
        &[-8.0, 7.0],
        &[8.0, -7.0],
        &[2.0, 4.0, -6.0, 8.0],
        &[5.0, 5.0, -5.0],
        &[-0.0, 1.0],
    ];
    for codes in blocks {
        let values = spread(codes);
        let (block, fit) = encode(&values);
        assert_eq!(fit, Fit { blocks: 1, exact: 1 }, "{codes:?}");
        let decoded = decode(TensorType::Q4_0, &block);
        assert!(values.iter().zip(&decoded).all(|(&x, &y)| x == bf16(y)), "{codes:?}: {decoded:?}");
        assert!(!lattice::detect(&values), "{codes:?}: one block is no evidence");
    }
    let (block, fit) = encode(&spread(&[8.0, -8.0, 7.0]));
    assert_eq!(fit.exact, 0, "17 codes are too many");
    assert!(squared_error(&spread(&[8.0, -8.0, 7.0]), &block) <= f64::from(step * 1.01).powi(2));
}

#[test]
fn the_ends_of_half_precision() {
    let codes = |i: usize| [7.0, -3.0, 0.0, 5.0, 1.0, -6.0][i % 6];
    for (step, is_exact) in [(6e4, true), (2f32.powi(-17), true), (2f32.powi(-24), true), (1e-9, false)] {
        let values: Vec<f32> = (0..LEN).map(|i| bf16(bf16(step) * codes(i))).collect();
        let (block, fit) = encode(&values);
        assert_eq!(fit.exact == 1, is_exact, "{step}");
        assert!(decode(TensorType::Q4_0, &block).iter().all(|v| v.is_finite()), "{step}");
    }
    // One code beyond the range of half precision: a smaller step of the same lattice does it.
    let mut values = vec![0.0; LEN];
    values[3] = bf16(-2e5);
    assert_eq!(encode(&values).1.exact, 1);
    for tiny in [f32::from_bits(1), f32::MIN_POSITIVE, 1e-30] {
        let (block, _) = encode(&[tiny; LEN]);
        assert_eq!(decode(TensorType::Q4_0, &block), [0.0; LEN], "{tiny}");
    }
}

#[test]
fn a_few_damaged_blocks_do_not_hide_a_lattice() {
    let mut values = Quantizer::Symmetric.snap(&weights(4, 1000 * LEN), bf16);
    for block in values.chunks_mut(LEN).step_by(20) {
        block[5] = bf16(block[5] * 1.04 + 1e-4);
    }
    assert!(lattice::detect(&values));
    let (blocks, fit) = encode(&values);
    assert!((950..960).contains(&fit.exact), "{fit:?}");
    let naive = ordinary(&values);
    for (i, x) in values.chunks(LEN).enumerate().step_by(20) {
        let at = i * 18..(i + 1) * 18;
        assert!(squared_error(x, &blocks[at.clone()]) <= squared_error(x, &naive[at]), "block {i}");
    }
    for block in values.chunks_mut(LEN).step_by(7) {
        block[9] = bf16(block[9] * 1.04 + 1e-4);
    }
    assert!(!lattice::detect(&values), "a fifth of the blocks is off");
}

#[test]
fn ordinary_weights_are_not_detected() {
    let plain = weights(5, 4096 * LEN);
    let each = |f: fn(f32) -> f32| -> Vec<f32> { plain.iter().map(|&v| f(v)).collect() };
    let eight_bits = {
        let mut blocks = Vec::new();
        quantize(TensorType::Q8_0, &plain, &mut blocks).expect("finite values of whole blocks");
        decode(TensorType::Q8_0, &blocks)
    };
    let tensors = [
        ("f32", plain.clone()),
        ("bf16", each(bf16)),
        ("f16", each(f16)),
        ("q8_0", eight_bits),
        ("heavy tails", each(|v| bf16(v * v * v))),
        ("uniform", each(|v| bf16((v * 1e4).fract()))),
        ("three digits", each(|v| bf16((v * 1e4).round()))),
        ("outliers", each(|v| bf16(if v > 0.04 { v * 100.0 } else { v }))),
        ("mostly zero", each(|v| if v.abs() > 0.03 { bf16(v) } else { 0.0 })),
        ("one magnitude", each(|v| 0.5f32.copysign(v))),
        ("ternary", each(|v| if v.abs() > 0.02 { 0.25f32.copysign(v) } else { 0.0 })),
        ("constant", vec![1.0; 4096]),
        ("zero", vec![0.0; 4096]),
        ("empty", Vec::new()),
        ("not finite", vec![f32::NAN; 4096]),
        ("infinite", each(|v| v * f32::INFINITY)),
    ];
    for (name, values) in tensors {
        assert!(!lattice::detect(&values), "{name}: {:?}", Evidence::of(&values));
    }
}

#[test]
fn no_random_block_passes() {
    let values: Vec<f32> = weights(6, 20_000 * LEN).into_iter().map(bf16).collect();
    let fits = values.chunks(LEN).filter(|x| encode(x).1.exact == 1).count();
    assert_eq!(fits, 0);
}

/// The bound that [`Evidence`] counts with.
#[test]
fn few_magnitudes_fit_by_chance_as_often_as_said() {
    let mut numbers = Numbers(8);
    for (magnitudes, rounds) in [(2, 20_000), (3, 20_000), (4, 100_000)] {
        let mut fits = 0;
        for _ in 0..rounds {
            let mut block = [0.0; LEN];
            for value in &mut block[..magnitudes] {
                *value = bf16((numbers.next() >> 40) as f32 / (1 << 24) as f32 + 1e-3);
            }
            fits += encode(&block).1.exact;
        }
        let bound = 8.0 / 16f64.powi(magnitudes as i32 - 1);
        let share = fits as f64 / f64::from(rounds);
        assert!(share < bound && share > bound / 100.0, "{magnitudes}: {share} of at most {bound}");
    }
}

#[test]
fn real_tensors_are_not_detected() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut seen = 0;
    for folder in ["models/demo/tiny-dense", "fixtures/tiny/gemma3", "fixtures/tiny/llama"] {
        let path = root.join(folder).join("model.safetensors");
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tensors = SafeTensors::deserialize(&file).expect("a safetensors file");
        for (name, tensor) in tensors.tensors() {
            let mut values = vec![0.0; tensor.data().len() * 8 / tensor.dtype().bitsize()];
            match tensor.dtype() {
                Dtype::BF16 => bf16_bytes_to_f32(tensor.data(), &mut values),
                Dtype::F32 => {
                    values = tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
                }
                dtype => panic!("{name}: {dtype:?}"),
            }
            assert!(!lattice::detect(&values), "{folder}: {name}: {:?}", Evidence::of(&values));
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn a_sample_covers_the_tensor() {
    for (rows, columns) in
        [(1, 32), (100, 32), (704 * 128, 2816), (262_144, 640), (7, 1 << 20), (5, 0), (0, 64)]
    {
        let sample: Vec<usize> = lattice::sample_rows(rows, columns).collect();
        assert!(sample.is_sorted_by(|a, b| a < b) && sample.iter().all(|&r| r < rows), "{rows} x {columns}");
        assert!(sample.len() == rows || sample.len() * columns / LEN >= 2048, "{rows} x {columns}");
        assert!(sample.len() <= rows.min(2048), "{rows} x {columns}");
    }
    let experts: std::collections::BTreeSet<usize> =
        lattice::sample_rows(704 * 128, 2816).map(|row| row / 704).collect();
    assert_eq!(experts.len(), 128);
}

#[test]
fn bad_input_is_refused() {
    let mut out = vec![1, 2, 3];
    let refusal = |values: &[f32], out: &mut Vec<u8>| lattice::quantize(values, out).expect_err("bad input");
    assert!(matches!(refusal(&[0.0; 33], &mut out), QuantError::RaggedValues { len: 33, block: 32, .. }));
    let mut values = [1.0; 64];
    values[40] = f32::NAN;
    assert!(matches!(refusal(&values, &mut out), QuantError::NotFinite { index: 40, .. }));
    values[40] = 1e6;
    assert!(matches!(refusal(&values, &mut out), QuantError::TooLarge { index: 40, .. }));
    assert_eq!(out, [1, 2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_codes_of_a_bf16_step(codes in prop::collection::vec(-8i8..8, LEN), step in 0x3800u16..0x4200, negative: bool) {
        let step = if negative { -bf16_to_f32(step) } else { bf16_to_f32(step) };
        let values: Vec<f32> = codes.iter().map(|&c| bf16(f32::from(c) * step)).collect();
        let (block, fit) = encode(&values);
        prop_assert_eq!(fit.exact, 1);
        prop_assert_eq!(exact(&values, &block), 1);
    }

    #[test]
    fn groupings_do_not_matter(seed: u64, cut in 0usize..16) {
        let mut values = Quantizer::Half.snap(&weights(seed, 16 * LEN), |d| d);
        values[77] *= 1.1;
        let (all, fit) = encode(&values);
        let (mut left, mut sum) = encode(&values[..cut * LEN]);
        let (right, rest) = encode(&values[cut * LEN..]);
        left.extend(right);
        sum += rest;
        prop_assert_eq!((all, fit), (left, sum));
    }
}
