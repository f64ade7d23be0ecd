//! `check_blocks` against decoding.

use hf2q_gguf::TensorType;
use hf2q_quant::{BadBlock, Fault, check_blocks};
use proptest::prelude::*;

use crate::input::{Numbers, decodable, decode};

/// The first block with a value that is not finite. An exponent of 255 decodes to finite values but is bad.
fn first_bad(ty: TensorType, blocks: &[u8]) -> Option<usize> {
    let values = decode(ty, blocks);
    let mut pairs = blocks.chunks(ty.block_bytes()).zip(values.chunks(ty.block_len()));
    pairs.position(|(block, values)| {
        values.iter().any(|v| !v.is_finite()) || (ty == TensorType::Mxfp4 && block[0] == 255)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_decoding(seed: u64, count in 0..80usize) {
        for ty in decodable() {
            let blocks = Numbers(seed).bytes(count * ty.block_bytes());
            let found = check_blocks(ty, &blocks).err().map(|bad| bad.index);
            prop_assert_eq!(found, first_bad(ty, &blocks), "{}", ty);
        }
    }
}

#[test]
fn large_exponents_are_bad_where_they_overflow() {
    for (e, code, fine) in [(252, 7, true), (253, 5, true), (253, 6, false), (254, 3, true), (254, 4, false)]
    {
        let mut block = [0; 17];
        (block[0], block[9]) = (e, code << 4);
        let expected = if fine { Ok(()) } else { Err(BadBlock { index: 0, what: Fault::Value }) };
        assert_eq!(check_blocks(TensorType::Mxfp4, &block), expected, "{e} {code}");
        assert_eq!(first_bad(TensorType::Mxfp4, &block), (!fine).then_some(0), "{e} {code}");
    }
}

#[test]
fn faults_are_told_apart() {
    let infinity = 0x7c00_u16.to_le_bytes();
    let mut blocks = vec![0; 3 * 144];
    blocks[2 * 144 + 2..2 * 144 + 4].copy_from_slice(&infinity);
    let bad = check_blocks(TensorType::Q4K, &blocks).unwrap_err();
    assert_eq!(bad.to_string(), "block 2: the minimum is NaN or infinite");
    blocks[144..146].copy_from_slice(&infinity);
    let bad = check_blocks(TensorType::Q4K, &blocks).unwrap_err();
    assert_eq!(bad, BadBlock { index: 1, what: Fault::Scale });
    let bad = check_blocks(TensorType::Q4K, &[0; 200]).unwrap_err();
    assert_eq!(bad, BadBlock { index: 1, what: Fault::CutShort });
    let mut values = vec![0; 4 * 3000];
    values[4 * 2500..4 * 2501].copy_from_slice(&f32::NAN.to_le_bytes());
    let bad = check_blocks(TensorType::F32, &values).unwrap_err();
    assert_eq!(bad, BadBlock { index: 2500, what: Fault::Value });
    assert_eq!(check_blocks(TensorType::F64, &f64::NAN.to_le_bytes()).unwrap_err().what, Fault::Value);
    assert_eq!(check_blocks(TensorType::I32, &[255; 8]), Ok(()));
    assert_eq!(check_blocks(TensorType::I32, &[255; 7]), Err(BadBlock { index: 1, what: Fault::CutShort }));
}
