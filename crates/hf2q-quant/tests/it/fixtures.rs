//! Rows of many kinds, and what the reference makes of them, from the repository's fixtures.

use std::path::Path;

use hf2q_gguf::TensorType;
use hf2q_quant::{can_encode, check_blocks};
use safetensors::SafeTensors;

use crate::input::{decodable, decode, encode, encode_weighted, hash};

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quant")).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn tensor(file: &[u8], name: &str) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(file).expect("a safetensors file");
    tensors.tensor(name).expect("a tensor of the fixture").data().to_vec()
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// All types in the fixtures, which are those with an encoder; `f32` needs none.
fn types() -> impl Iterator<Item = (TensorType, Vec<u8>)> {
    let others = decodable().filter(|&ty| ty != TensorType::F32 && can_encode(ty));
    others.map(|ty| (ty, file(&format!("{}.safetensors", ty.name().to_uppercase()))))
}

#[test]
fn decoded_values_equal() {
    for (ty, file) in types() {
        let blocks = tensor(&file, "encoded");
        assert_eq!(check_blocks(ty, &blocks), Ok(()), "{ty}");
        let expected = singles(&tensor(&file, "decoded"));
        let found = decode(ty, &blocks);
        assert_eq!(found.len(), expected.len(), "{ty}");
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.to_bits(), expected.to_bits(), "{ty}: value {index}: {found} for {expected}");
        }
    }
}

fn assert_blocks_equal(ty: TensorType, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{ty}");
    let blocks = found.chunks(ty.block_bytes()).zip(expected.chunks(ty.block_bytes()));
    for (index, (found, expected)) in blocks.enumerate() {
        assert_eq!(found, expected, "{ty}: block {index}");
    }
}

#[test]
fn encoded_bytes_equal() {
    let rows = singles(&tensor(&file("input.safetensors"), "rows"));
    for (ty, file) in types() {
        assert_blocks_equal(ty, &encode(ty, &rows), &tensor(&file, "encoded"));
    }
}

#[test]
fn bytes_encoded_with_importance_equal() {
    let input = file("input.safetensors");
    let (rows, importance) = (singles(&tensor(&input, "rows")), singles(&tensor(&input, "importance")));
    for (ty, file) in types() {
        let tensors = SafeTensors::deserialize(&file).expect("a safetensors file");
        let name =
            if tensors.names().contains(&"encoded_importance") { "encoded_importance" } else { "encoded" };
        assert_blocks_equal(ty, &encode_weighted(ty, &rows, &importance), &tensor(&file, name));
    }
}

/// Rows that no model should have, without importance and with importance of five kinds.
#[test]
fn hard_rows_are_encoded_as_by_the_reference() {
    /// Instead of the hash of bytes that nobody should write.
    const NOT_SOUND: u64 = 0;
    let file = file("hard.safetensors");
    let rows = singles(&tensor(&file, "rows"));
    let importance = singles(&tensor(&file, "importance"));
    let sets = std::iter::once(None).chain(importance.chunks(512).map(Some));
    let names = SafeTensors::deserialize(&file).expect("a safetensors file");
    for ty in hf2q_quant::encodable() {
        let Ok(hashes) = names.tensor(&ty.name().to_uppercase()) else {
            assert!(ty.block_len() == 1, "{ty} has no hashes");
            continue;
        };
        let mut expected = hashes.data().as_chunks().0.iter().map(|&hash| u64::from_le_bytes(hash));
        for (set, importance) in sets.clone().enumerate() {
            let encoded = match importance {
                Some(importance) => encode_weighted(ty, &rows, importance),
                None => encode(ty, &rows),
            };
            for (row, bytes) in encoded.chunks(encoded.len() / (rows.len() / 512)).enumerate() {
                let expected = expected.next().expect("a hash per row");
                let found = if expected == NOT_SOUND { NOT_SOUND } else { hash(bytes) };
                assert_eq!(found, expected, "{ty}: row {row}, importance {set}");
            }
        }
        assert_eq!(expected.next(), None, "{ty}");
    }
}
