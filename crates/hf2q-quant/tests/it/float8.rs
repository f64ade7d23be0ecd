//! Floats of 8 bits, all codes of them.

use hf2q_quant::float8::Float8;

use crate::input::hash;

/// Hashes of the values of all codes, NaN made uniform: `make_goldens.py` prints them.
const GOLDENS: [(Float8, u64); 3] = [
    (Float8::E4M3, 0xdad1_d9c5_0f74_9ca5),
    (Float8::E5M2, 0x6c1e_56b6_fb09_c905),
    (Float8::E8M0, 0x6d2c_8b41_c3f0_e5a5),
];

fn all(format: Float8) -> Vec<f32> {
    let codes: Vec<u8> = (0..=255).collect();
    let mut values = vec![0.0; 256];
    format.decode(&codes, &mut values);
    values
}

#[test]
fn all_codes_are_those_of_the_reference() {
    for (format, expected) in GOLDENS {
        let uniform = |v: f32| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() };
        let bytes: Vec<u8> = all(format).into_iter().flat_map(|v| uniform(v).to_le_bytes()).collect();
        assert_eq!(hash(&bytes), expected, "{format:?}");
    }
}

/// From the definition of the formats: `None` where a code is no number.
fn defined(format: Float8, code: u8) -> Option<f64> {
    let (mantissa, bias) = match format {
        Float8::E4M3 => (3, 7),
        Float8::E5M2 => (2, 15),
        Float8::E8M0 => return (code < 255).then(|| 2f64.powi(i32::from(code) - 127)),
    };
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(code & 0x7f) >> mantissa, code & ((1 << mantissa) - 1));
    let fraction = f64::from(fraction) / f64::from(1 << mantissa);
    match (format, exponent) {
        (Float8::E5M2, 31) if fraction == 0.0 => Some(sign * f64::INFINITY),
        (Float8::E5M2, 31) => None,
        _ if code & 0x7f == 0x7f => None,
        (_, 0) => Some(sign * fraction * 2f64.powi(1 - bias)),
        _ => Some(sign * (1.0 + fraction) * 2f64.powi(exponent - bias)),
    }
}

#[test]
fn all_codes_follow_the_definition() {
    for (format, _) in GOLDENS {
        for (code, found) in (0..=255).zip(all(format)) {
            match defined(format, code) {
                Some(value) => {
                    assert_eq!(f64::from(found).to_bits(), value.to_bits(), "{format:?} {code:#04x}")
                }
                None => assert!(found.is_nan(), "{format:?} {code:#04x}"),
            }
            assert_eq!(format.value(code).to_bits(), found.to_bits());
        }
    }
}

#[test]
#[should_panic(expected = "a value for every code")]
fn lengths_must_agree() {
    Float8::E4M3.decode(&[0; 3], &mut [0.0; 2]);
}
