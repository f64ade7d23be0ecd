//! Damaged metadata: each kind has its own message that names the key.

use hf2q_gguf::{Array, GgufError, Value};

use crate::craft::{Craft, array, assert_says, string, value};

#[test]
fn damaged_values_are_refused() {
    let cases: &[(Craft, &[&str])] = &[
        (Craft::new().key("k", value(13, &[0; 8])), &["`k`", "value type 13"]),
        (Craft::new().key("k", value(u32::MAX, &[0; 8])), &["`k`", "value type 4294967295"]),
        (Craft::new().key("k", array(99, 0, &[])), &["`k`", "array of value type 99"]),
        (Craft::new().key("k", value(7, &[2])), &["`k`", "byte 2", "0 or 1"]),
        (Craft::new().key("k", array(7, 3, &[1, 0, 255])), &["`k`", "byte 255", "index 2"]),
        (Craft::new().key("k", value(8, b"\x02\0\0\0\0\0\0\0a\xff")), &["`k`", "UTF-8", "byte 46"]),
        (
            Craft::new().key("k", array(8, 2, b"\x01\0\0\0\0\0\0\0a\x01\0\0\0\0\0\0\0\xc0")),
            &["`k`[1]", "UTF-8"],
        ),
        (Craft::new().key("k", value(0, &[1])).key("k", value(0, &[1])), &["`k`", "twice"]),
        (Craft::new().key("k", array(9, 1, &array(0, 1, &[0]))), &["`k`", "array of arrays"]),
    ];
    for (craft, parts) in cases {
        assert_says(&craft.refusal(), parts);
    }
}

#[test]
fn alignments_are_checked() {
    let with = |value: Vec<u8>| Craft::new().key("general.alignment", value);
    for bad in [0_u32, 1, 4, 24, 33, u32::MAX] {
        let text = with(value(4, &bad.to_le_bytes())).refusal();
        assert_says(&text, &["general.alignment", &format!("is {bad};"), "power of two"]);
    }
    assert!(matches!(with(value(8, &string("32"))).open(), Err(GgufError::KeyType { .. })));
    assert!(matches!(with(value(5, &(-32_i32).to_le_bytes())).open(), Err(GgufError::KeyRange { .. })));
    let widest = with(value(10, &(1_u64 << 20).to_le_bytes())).f32("t", &[1], 0);
    assert!(matches!(widest.open(), Err(GgufError::MissingData { .. })));
    assert_eq!(widest.data(1 << 20).open().unwrap().alignment(), 1 << 20);
    for shift in [21, 63] {
        let text = with(value(10, &(1_u64 << shift).to_le_bytes())).refusal();
        assert_says(&text, &["general.alignment", "1048576"]);
    }
    let fits = with(value(4, &64_u32.to_le_bytes())).f32("t", &[1], 0).data(64).open().unwrap();
    assert_eq!((fits.alignment(), fits.tensors()[0].offset % 64), (64, 0));
}

#[test]
fn all_types_are_read() {
    let craft = Craft::new()
        .key("u8", value(0, &[200]))
        .key("i8", value(1, &[200]))
        .key("u16", value(2, &[1, 2]))
        .key("f32", value(6, &1.5_f32.to_le_bytes()))
        .key("yes", value(7, &[1]))
        .key("text", value(8, &string("ü")))
        .key("f64", value(12, &0.1_f64.to_le_bytes()))
        .key("bools", array(7, 2, &[1, 0]))
        .key("none", array(8, 0, &[]))
        .key("i16s", array(3, 2, &[255, 255, 1, 0]));
    let file = craft.open().unwrap();
    let expected = [
        Value::U8(200),
        Value::I8(-56),
        Value::U16(513),
        Value::F32(1.5),
        Value::Bool(true),
        Value::String("ü".to_owned()),
        Value::F64(0.1),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::String(Vec::new())),
        Value::Array(Array::I16(vec![-1, 1])),
    ];
    let found: Vec<Value> = file.metadata().iter().map(|(_, v)| v.clone()).collect();
    assert_eq!(found, expected);
    assert_eq!(file.metadata().i32s("i16s").unwrap(), [-1, 1]);
    assert_eq!(file.metadata().f32("f64").unwrap(), 0.1);
    assert!(file.metadata().strings("none").unwrap().is_empty());
}

#[test]
fn version_2_is_read_like_version_3() {
    let file = Craft { version: 2, ..Craft::new().f32("t", &[2], 0) }.open().unwrap();
    assert_eq!((file.version(), file.tensors()[0].elements()), (2, 2));
}
