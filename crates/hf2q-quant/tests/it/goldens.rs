//! Bit equality with the reference. `make_goldens.py` beside this folder prints the tables.

use hf2q_gguf::TensorType;

use crate::input::{Numbers, decodable, decode, encode, encode_weighted, hash, values, weights};

const BLOCKS: usize = 64;
const VALUES: usize = 32 * 304;
const COLUMNS: usize = 512;

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
    ("iq2_xxs", 0x7e745e6196b49632),
    ("iq2_xs", 0xa0e347e3fcbfd9c5),
    ("iq3_xxs", 0xc9cdfdd1a1aa4779),
    ("iq1_s", 0xcc8286b6f59a89e9),
    ("iq4_nl", 0x0b7a79c620b9f863),
    ("iq3_s", 0x2d7a4fd9ddfdaaec),
    ("iq2_s", 0x5124ea372ca774fd),
    ("iq4_xs", 0x7ea5a866a700157b),
    ("iq1_m", 0x817fc0e5aaf6c87b),
    ("bf16", 0x4a35b21380297662),
    ("tq1_0", 0x60839979b3bef390),
    ("tq2_0", 0x50ae7268c237530d),
    ("mxfp4", 0xa75cf0b0806979e6),
];

/// Hashes of the encoded values of `input::values`, without weights and with those of `input::weights`.
const ENCODED: &[(&str, u64, u64)] = &[
    ("f32", 0xc9caaaeb46f50040, 0xc9caaaeb46f50040),
    ("f16", 0x90cca474b4c395b2, 0x90cca474b4c395b2),
    ("q4_0", 0x2d777c3068490326, 0x8e8ffff600ea3cbc),
    ("q4_1", 0x877658a99d217f2c, 0xa1e5a6197afd2f20),
    ("q5_0", 0x6fe4748bebfd7d7c, 0xd416056ff4f45e32),
    ("q5_1", 0x3df91aef1111309a, 0x9bf7487325bc1772),
    ("q8_0", 0xa01ece902b47aab4, 0xa01ece902b47aab4),
    ("q2_k", 0x57ed9d340bd58209, 0x6a29f204e20d9ccd),
    ("q3_k", 0xe07e2b6e98f2138b, 0xccdf93fa43546637),
    ("q4_k", 0x28ce889e477a39eb, 0x351feb89ca25124a),
    ("q5_k", 0xdba7e332c91ce859, 0x90e72fd39b025b9d),
    ("q6_k", 0x860a94edabe63b37, 0xdd9ea6abd763b055),
    ("iq4_nl", 0xd12a09bddf6f85fe, 0x2130c47f6c9f3b4c),
    ("iq4_xs", 0xe68ad2cd407c3dfb, 0xb03d654c415864e3),
    ("bf16", 0x38143a4cd185bcac, 0x38143a4cd185bcac),
    ("mxfp4", 0xcdd6512c777ceeff, 0xcdd6512c777ceeff),
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
    let (rows, weights) = (values(VALUES), weights(COLUMNS));
    for &(name, plain, weighted) in ENCODED {
        let ty = TensorType::from_name(name).unwrap();
        assert_eq!(hash(&encode(ty, &rows)), plain, "{name}");
        assert_eq!(hash(&encode_weighted(ty, &rows, &weights)), weighted, "{name} with weights");
    }
}

#[test]
fn every_codec_has_a_golden() {
    let listed: Vec<_> = DECODED.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, decodable().map(TensorType::name).collect::<Vec<_>>());
    let listed: Vec<_> = ENCODED.iter().map(|(name, ..)| *name).collect();
    for ty in hf2q_quant::encodable() {
        assert!(listed.contains(&ty.name()), "{ty} has an encoder but no golden");
    }
}
