//! Damaged tensor descriptions: each kind has its own message that names the tensor.

use hf2q_gguf::{GgufError, TensorType};

use crate::craft::{Craft, assert_says};

#[test]
fn damaged_descriptions_are_refused() {
    let cases: &[(Craft, &[&str])] = &[
        (Craft::new().f32("a", &[1], 0).f32("a", &[1], 32), &["`a`", "twice"]),
        (Craft::new().f32("a", &[0, 4], 0), &["`a`", "[0, 4]", "no elements"]),
        (Craft::new().f32("a", &[4, 0], 0), &["`a`", "[4, 0]", "no elements"]),
        (Craft::new().tensor("a", &[32], 99, 0).data(256), &["`a`", "type 99:", "q4_k"]),
        (Craft::new().tensor("a", &[256], 40, 0).data(256), &["`a`", "type 40 (nvfp4)", "not supported"]),
        (Craft::new().tensor("a", &[33], 2, 0).data(256), &["`a`", "33", "q4_0", "multiple of 32"]),
        (Craft::new().tensor("a", &[32, 2], 12, 0).data(256), &["`a`", "q4_k", "multiple of 256"]),
        (Craft::new().f32("a", &[1], 4), &["`a`", "offset 4", "alignment 32"]),
        (Craft::new().f32("a", &[16], 0).f32("b", &[1], 32), &["`a` and `b`", "overlap"]),
        (Craft::new().f32("b", &[1], 32).f32("a", &[16], 0), &["`a` and `b`", "overlap"]),
        (Craft::new().f32("a", &[1], 0).f32("b", &[1], 0), &["`a` and `b`", "overlap"]),
        (Craft::new().tensor("a", &[1], 0, u64::MAX - 31).data(64), &["`a`", "64 bits"]),
        (Craft::new().tensor("a", &[1], 0, 1 << 62).data(64), &["`a`", "promises"]),
    ];
    for (craft, parts) in cases {
        assert_says(&craft.refusal(), parts);
    }
}

/// The second dimension makes the product wrap around 64 bits to a small number.
#[test]
fn a_wrapping_size_is_refused() {
    let rows = (1_u64 << 42) + 1;
    let cols = 1_u64 << 22;
    assert!(cols * 4 == cols.wrapping_mul(rows).wrapping_mul(4), "the case must wrap");
    let craft = Craft::new().tensor("w", &[cols, rows], 0, 0).data(cols as usize * 4);
    assert_says(&craft.refusal(), &["`w`", "4398046511105", "too large"]);
    // Small enough for 64 bits, but far beyond the file.
    let craft = Craft::new().tensor("w", &[8, rows], 0, 0).data(64);
    assert!(matches!(craft.open(), Err(GgufError::MissingData { .. })));
}

#[test]
fn gaps_and_any_order_are_fine() {
    let file = Craft::new().f32("b", &[2, 3], 128).f32("a", &[4], 0).data(300).open().unwrap();
    let (a, b) = (file.tensor("a").unwrap(), file.tensor("b").unwrap());
    assert_eq!(b.offset - a.offset, 128);
    assert_eq!((b.cols(), b.rows(), b.elements(), b.bytes), (2, 3, 6, 24));
    assert_eq!((file.data(a).len(), file.bytes(b).len()), (16, 24));
    assert!(file.tensor("c").is_none());
}

#[test]
fn every_known_type_is_read_with_its_size() {
    for ty in TensorType::all() {
        let cols = ty.block_len() as u64 * 2;
        let bytes = ty.block_bytes() * 6;
        let file = Craft::new().tensor("t", &[cols, 3], ty.id(), 0).data(bytes).open().unwrap();
        assert_eq!(file.tensors()[0].bytes, bytes as u64, "{ty}");
        let short = Craft::new().tensor("t", &[cols, 3], ty.id(), 0).data(bytes - 1);
        assert!(matches!(short.open(), Err(GgufError::MissingData { .. })), "{ty}");
    }
}
