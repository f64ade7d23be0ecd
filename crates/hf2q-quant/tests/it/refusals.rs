//! What is refused, and how it is said.

use hf2q_gguf::TensorType;
use hf2q_quant::{QuantError, dequantize, quantize};

use crate::input::{decode, encode};

#[test]
fn values_that_are_no_numbers_are_named() {
    for ty in hf2q_quant::encodable() {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7f80_0001)] {
            for index in [0, 31, 32, 1023, 1024, 4095] {
                let mut x = vec![1.0; 4096];
                (x[index], x[4095]) = (value, if index == 4095 { value } else { f32::NAN });
                let mut out = vec![7];
                let error = quantize(ty, &x, &mut out).unwrap_err();
                let QuantError::NotFinite { index: found, value: seen } = error else {
                    panic!("{ty}: {error}")
                };
                assert_eq!((found, seen.to_bits()), (index, value.to_bits()), "{ty}");
                assert!(error.to_string().starts_with(&format!("value {index} is ")), "{error}");
                assert_eq!(out, [7], "{ty}: the output is untouched");
            }
        }
    }
}

/// The next smaller magnitude.
fn below(limit: f32) -> f32 {
    f32::from_bits(limit.to_bits() - 1)
}

#[test]
fn values_are_refused_exactly_where_their_code_would_be_infinite() {
    let limits = [
        (TensorType::F16, 65520.0),
        (TensorType::Bf16, f32::from_bits(0x7f7f_8000)),
        (TensorType::Q4_0, 524_160.0),
        (TensorType::Q5_0, 1_048_320.0),
        (TensorType::Q8_0, 8_321_040.0),
    ];
    for (ty, limit) in limits {
        for sign in [1.0, -1.0] {
            let mut x = vec![0.5; 64];
            x[40] = sign * limit;
            let expected = QuantError::TooLarge { ty, index: 40, value: sign * limit, limit };
            assert_eq!(quantize(ty, &x, &mut Vec::new()), Err(expected));
            x[40] = sign * below(limit);
            let back = decode(ty, &encode(ty, &x))[40];
            assert!(back.is_finite() && (back - x[40]).abs() <= limit * 0.005, "{ty}: {back} for {}", x[40]);
        }
    }
    assert_eq!(decode(TensorType::F32, &encode(TensorType::F32, &[f32::MAX])), [f32::MAX]);
}

#[test]
fn the_largest_exponents_of_mxfp4_stay_finite() {
    let limit = f32::from_bits(0x7f7f_ffd4);
    let mut x = [0.5; 32];
    x[9] = limit;
    let expected = QuantError::TooLarge { ty: TensorType::Mxfp4, index: 9, value: limit, limit };
    assert_eq!(quantize(TensorType::Mxfp4, &x, &mut Vec::new()), Err(expected));
    x[9] = below(limit);
    assert_eq!(decode(TensorType::Mxfp4, &encode(TensorType::Mxfp4, &x))[9], 1.5 * 2f32.powi(127));
}

/// Whether the scale or the minimum of a block is finite depends on more than one value. The index counts from
/// the first value given, however many were encoded before the block.
#[test]
fn scales_beyond_half_precision_are_refused() {
    let cases = [
        (TensorType::Q4_1, -65520.0, -65519.0),
        (TensorType::Q5_1, 31.0 * 65520.0 + 64.0, 31.0 * 65519.0),
        (TensorType::Iq4Nl, 127.0 * 70000.0, 113.0 * 60000.0),
        (TensorType::Iq4Xs, 32.0 * 127.0 * 70000.0, 32.0 * 113.0 * 60000.0),
    ];
    for (ty, value, fine) in cases {
        let mut x = vec![0.0; 1 << 15];
        x[30000] = value;
        let expected = QuantError::ScaleOverflow { ty, index: 30000, value };
        let mut out = vec![7];
        assert_eq!(quantize(ty, &x, &mut out), Err(expected));
        assert_eq!(out, [7], "{ty}: the output is untouched");
        x[30000] = fine;
        let back = decode(ty, &encode(ty, &x))[30000];
        assert!((back - fine).abs() <= fine.abs() * 0.01, "{ty}: {back} for {fine}");
    }
}

#[test]
fn ragged_rows_are_refused() {
    for ty in [TensorType::Q4_0, TensorType::Q8_0] {
        let error = quantize(ty, &[0.0; 33], &mut Vec::new()).unwrap_err();
        assert_eq!(error, QuantError::RaggedValues { ty, len: 33, block: 32 });
        let error = dequantize(ty, &vec![0; ty.block_bytes() + 1], &mut [0.0; 32]).unwrap_err();
        assert_eq!(error, QuantError::RaggedBytes { ty, len: ty.block_bytes() + 1, block: ty.block_bytes() });
        let error = dequantize(ty, &vec![0; ty.block_bytes()], &mut [0.0; 31]).unwrap_err();
        assert_eq!(error, QuantError::OutputLength { ty, expected: 32, found: 31 });
    }
}

#[test]
fn types_without_a_codec_are_refused() {
    for ty in TensorType::all() {
        let no_values: [f32; 0] = [];
        let encoded = quantize(ty, &no_values, &mut Vec::new());
        assert_eq!(encoded.is_ok(), hf2q_quant::can_encode(ty), "{ty}");
        assert_eq!(dequantize(ty, &[], &mut []).is_ok(), hf2q_quant::can_decode(ty), "{ty}");
    }
    let error = quantize(TensorType::I8, &[0.0; 256], &mut Vec::new()).unwrap_err();
    let names: Vec<_> = hf2q_quant::encodable().map(TensorType::name).collect();
    assert!(names.starts_with(&["f32", "f16", "q4_0", "q4_1"]), "{names:?}");
    let expected = format!("cannot encode i8; types that can be encoded: {}", names.join(", "));
    assert_eq!(error.to_string(), expected);
    let error = dequantize(TensorType::I8, &[0], &mut [0.0]).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot decode i8 to f32; types that can be decoded: f32, "),
        "{error}"
    );
}
