//! Bit equality with the reference. `make_goldens.py` beside this folder prints the tables.

use hf2q_gguf::TensorType;

use crate::input::{Numbers, decodable, decode, encode, hash, values};

const BLOCKS: usize = 64;
const VALUES: usize = 32 * 300;

/// Hashes of 64 decoded blocks of random bytes, NaN made uniform.
const DECODED: &[(&str, u64)] = &[
    ("f32", 0x6fb71b582e7e57c0),
    ("f16", 0x4a86fdc171f9d1f6),
    ("q4_0", 0xcded9858bd3dbc97),
    ("q4_1", 0xc1da3666f84ce31b),
    ("q5_0", 0x34bf23c7d5032646),
    ("q5_1", 0xd6aa2f778a84b188),
    ("q8_0", 0x3129a242e91b8488),
    ("q2_k", 0x44575f4ea0fd1cc9),
    ("q3_k", 0x17bfd0b59393ad5b),
    ("q4_k", 0xa0d61817f79b78cc),
    ("q5_k", 0xe12c21b7549cd4f4),
    ("q6_k", 0xbe3afb03abcb7fbb),
    ("iq4_nl", 0x0b7a79c620b9f863),
    ("iq4_xs", 0x7ea5a866a700157b),
    ("bf16", 0x4a35b21380297662),
    ("mxfp4", 0xa75cf0b0806979e6),
];

/// Hashes of the encoded values of `input::values`.
const ENCODED: &[(&str, u64)] = &[
    ("f32", 0x1917175c27cd7445),
    ("f16", 0xcff42ec27898932b),
    ("q4_0", 0xc4554be87f34a155),
    ("q8_0", 0xc332a702609b24ca),
    ("bf16", 0xe00a3c9684f8f21f),
];

#[test]
fn decoded_bits_are_those_of_the_reference() {
    for &(name, expected) in DECODED {
        let ty = TensorType::from_name(name).unwrap();
        let blocks = Numbers(ty.id().into()).bytes(BLOCKS * ty.block_bytes());
        let uniform = |v: f32| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() };
        let bytes: Vec<u8> = decode(ty, &blocks).into_iter().flat_map(|v| uniform(v).to_le_bytes()).collect();
        assert_eq!(hash(&bytes), expected, "{name}");
    }
}

#[test]
fn encoded_bytes_are_those_of_the_reference() {
    for &(name, expected) in ENCODED {
        let ty = TensorType::from_name(name).unwrap();
        assert_eq!(hash(&encode(ty, &values(VALUES))), expected, "{name}");
    }
}

#[test]
fn every_codec_has_a_golden() {
    let listed = |table: &[(&str, u64)]| table.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(listed(DECODED), decodable().map(|ty| ty.name().to_owned()).collect::<Vec<_>>());
    assert_eq!(listed(ENCODED), hf2q_quant::encodable().map(|ty| ty.name().to_owned()).collect::<Vec<_>>());
}
