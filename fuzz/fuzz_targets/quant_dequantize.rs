//! Any bytes as blocks of any type: no panic, and the quick check says what decoding says. Decoded values that an
//! encoder accepts come back finite.
#![no_main]

use hf2q_gguf::TensorType;
use hf2q_quant::{can_decode, check_blocks, dequantize, encodable, quantize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, bytes)) = input.split_first() else { return };
    let types: Vec<TensorType> = TensorType::all().collect();
    let ty = types[usize::from(pick) % types.len()];
    let checked = check_blocks(ty, bytes);
    let blocks = bytes.len() / ty.block_bytes();
    let mut values = vec![0.0; blocks * ty.block_len()];
    let decoded = dequantize(ty, bytes, &mut values);
    assert_eq!(decoded.is_ok(), can_decode(ty) && bytes.len().is_multiple_of(ty.block_bytes()));
    if decoded.is_err() {
        return;
    }
    match checked {
        Ok(()) => assert!(values.iter().all(|v| v.is_finite())),
        Err(bad) => assert!(values[..bad.index * ty.block_len()].iter().all(|v| v.is_finite())),
    }
    for target in encodable() {
        let mut encoded = Vec::new();
        if quantize(target, &values, &mut encoded).is_ok() {
            assert_eq!(check_blocks(target, &encoded), Ok(()));
            dequantize(target, &encoded, &mut values.clone()).expect("whole blocks were written");
        } else {
            assert!(encoded.is_empty());
        }
    }
});
