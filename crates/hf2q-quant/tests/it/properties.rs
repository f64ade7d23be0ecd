//! Bounds of what encoding loses, and independence of blocks.

use hf2q_gguf::TensorType;
use hf2q_quant::{dequantize, quantize};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::input::{Numbers, decode, encode};

/// Relative error of a normal half, and absolute error of a subnormal one.
const HALF_EPSILON: f64 = 1.0 / 2048.0;
const HALF_TINY: f64 = 1.0 / (1 << 25) as f64;

/// Below this magnitude, searches take values for zeros.
const SEARCHED: f64 = 1e-15;

/// The largest error of a value of a block whose largest magnitude is `most`.
fn bound(ty: TensorType, value: f64, most: f64) -> f64 {
    // Up to some steps for the code, and the rounding of the scale times the code (and of the minimum).
    let block = |steps: f64, levels: f64, span: f64| {
        let step = span / levels;
        let rounding = (levels + 1.0) * (step * HALF_EPSILON).max(HALF_TINY);
        (steps * step + rounding) * (1.0 + 1e-5) + 1e-44
    };
    // A share of the largest magnitude, and the rounding of the scale of scales.
    let searched = |share: f64, levels: f64| share * most + levels * HALF_TINY + SEARCHED;
    match ty {
        TensorType::F32 => 0.0,
        TensorType::F16 => (value.abs() * HALF_EPSILON).max(HALF_TINY),
        TensorType::Bf16 => (value.abs() / 256.0).max(2f64.powi(-134)),
        TensorType::Q8_0 => block(0.5, 127.0, most),
        // A whole step for the end that has no code of its own.
        TensorType::Q4_0 => block(1.0, 8.0, most),
        TensorType::Q5_0 => block(1.0, 16.0, most),
        TensorType::Q4_1 => block(0.5, 15.0, 2.0 * most),
        TensorType::Q5_1 => block(0.5, 31.0, 2.0 * most),
        // Codes 8 and 12 are two steps of four from the largest magnitude, or 1/8 of it.
        TensorType::Mxfp4 => 0.25 * most + 2f64.powi(-124),
        TensorType::Iq4Nl => searched(0.25, 127.0),
        TensorType::Iq4Xs => searched(0.25, 32.0 * 127.0),
        TensorType::Q2K => searched(0.6, 63.0 * 15.0),
        TensorType::Q3K => searched(0.5, 32.0 * 4.0),
        TensorType::Q4K => searched(0.3, 63.0 * 15.0),
        TensorType::Q5K => searched(0.2, 63.0 * 31.0),
        TensorType::Q6K => searched(0.1, 128.0 * 32.0),
        other => panic!("{other} has an encoder but no bound"),
    }
}

/// Groups of 32 values of one scale, from subnormals to the range of half precision; whole blocks of any type.
fn blocks() -> impl Strategy<Value = Vec<f32>> {
    let group = (vec(-1.0..=1.0f32, 32), -140..=14i32)
        .prop_map(|(x, e)| x.into_iter().map(|v| (f64::from(v) * 2f64.powi(e)) as f32).collect::<Vec<_>>());
    (1..4usize).prop_flat_map(move |count| vec(group.clone(), 8 * count)).prop_map(|groups| groups.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn errors_are_bounded(x in blocks()) {
        for ty in hf2q_quant::encodable() {
            let back = decode(ty, &encode(ty, &x));
            let len = ty.block_len().max(32);
            for (x, back) in x.chunks(len).zip(back.chunks(len)) {
                let most = x.iter().fold(0.0, |most: f32, v| most.max(v.abs())).into();
                for (&x, &back) in x.iter().zip(back) {
                    let (x, back) = (f64::from(x), f64::from(back));
                    prop_assert!((x - back).abs() <= bound(ty, x, most), "{}: {} became {}", ty, x, back);
                }
            }
        }
    }

    #[test]
    fn encoding_appends_blocks_that_do_not_depend_on_each_other(x in blocks()) {
        for ty in hf2q_quant::encodable() {
            let mut parts = Vec::new();
            for block in x.chunks(ty.block_len().max(32)) {
                quantize(ty, block, &mut parts).unwrap();
            }
            prop_assert_eq!(&parts, &encode(ty, &x), "{}", ty);
        }
    }

    #[test]
    fn decoding_random_bytes_only_fails_by_length(seed: u64, len in 0..2000usize, room in 0..1000usize) {
        let bytes = Numbers(seed).bytes(len);
        for ty in TensorType::all() {
            let fits = len.is_multiple_of(ty.block_bytes()) && len / ty.block_bytes() * ty.block_len() == room;
            let decoded = dequantize(ty, &bytes, &mut vec![0.0; room]);
            prop_assert_eq!(decoded.is_ok(), fits && hf2q_quant::can_decode(ty), "{}", ty);
            if hf2q_quant::can_decode(ty) {
                decode(ty, &bytes[..len - len % ty.block_bytes()]);
            }
        }
    }
}

#[test]
fn zero_blocks_decode_to_zero() {
    for ty in hf2q_quant::encodable() {
        for zero in [0.0, -0.0] {
            let back = decode(ty, &encode(ty, &[zero; 256]));
            assert!(back.iter().all(|&v| v == 0.0), "{ty}: {back:?}");
        }
    }
    for ty in [TensorType::F32, TensorType::F16, TensorType::Bf16] {
        assert!(
            decode(ty, &encode(ty, &[-0.0; 4])).iter().all(|v| v.is_sign_negative()),
            "{ty} keeps the sign"
        );
    }
}

#[test]
fn halves_round_away_from_zero_in_q8_0_and_up_in_q4_0() {
    let mut x = [0.0; 32];
    (x[0], x[1], x[2], x[3], x[4]) = (127.0, 0.5, -0.5, 2.5, 0.499_999_97);
    assert_eq!(decode(TensorType::Q8_0, &encode(TensorType::Q8_0, &x))[..5], [127.0, 1.0, -1.0, 3.0, 0.0]);
    (x[0], x[1], x[2], x[3], x[4]) = (-8.0, 0.5, -0.5, 7.5, 7.4);
    assert_eq!(decode(TensorType::Q4_0, &encode(TensorType::Q4_0, &x))[..5], [-8.0, 1.0, 0.0, 7.0, 7.0]);
}

#[test]
fn the_first_of_equal_magnitudes_sets_the_sign_of_a_q4_0_scale() {
    let mut x = [0.0; 32];
    (x[5], x[20]) = (8.0, -8.0);
    let back = decode(TensorType::Q4_0, &encode(TensorType::Q4_0, &x));
    assert_eq!((back[5], back[20]), (8.0, -7.0));
    (x[5], x[20]) = (-8.0, 8.0);
    let back = decode(TensorType::Q4_0, &encode(TensorType::Q4_0, &x));
    assert_eq!((back[5], back[20]), (-8.0, 7.0));
}
