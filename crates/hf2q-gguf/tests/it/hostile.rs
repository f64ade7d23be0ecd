//! Small files that lie about counts and lengths: refused at once, each with its own message.

use std::collections::HashSet;

use hf2q_gguf::{Gguf, GgufError};

use crate::craft::{Craft, array, assert_says, parse, string, value};

#[test]
fn absurd_counts_are_refused_each_in_its_own_words() {
    let huge = 1_u64 << 63;
    let long_string = value(8, &huge.to_le_bytes());
    let cases = [
        Craft { key_count: Some(500_000_000), ..Craft::new() },
        Craft { key_count: Some(u64::MAX), ..Craft::new() },
        Craft { tensor_count: Some(huge), ..Craft::new() },
        Craft::new().key("s", long_string),
        Craft::new().key("a", array(4, huge, &[])),
        Craft::new().key("texts", array(8, huge, &[])),
        Craft::new().key("n", array(9, 1 << 62, &[])),
        Craft::new().key("bytes", array(0, u64::MAX, &[])),
    ];
    let expected: [&[&str]; 8] = [
        &["500000000 metadata keys", "8 bytes follow"],
        &["18446744073709551615 metadata keys"],
        &["9223372036854775808 tensors"],
        &["`s`", "string of 9223372036854775808 bytes"],
        &["`a`", "array of 9223372036854775808 values of type u32"],
        &["`texts`", "array of 9223372036854775808 values of type string"],
        &["`n`", "array of arrays"],
        &["`bytes`", "array of 18446744073709551615 values of type u8"],
    ];
    let mut messages = HashSet::new();
    for (case, parts) in cases.iter().zip(expected) {
        let text = case.refusal();
        assert_says(&text, parts);
        assert!(messages.insert(text));
    }
}

#[test]
fn a_name_longer_than_the_file_is_refused() {
    let mut bytes = Craft::new().key("abc", value(0, &[1])).bytes();
    bytes[24..32].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert_says(
        &parse(bytes).unwrap_err().to_string(),
        &["name of metadata key number 0", "1099511627776 bytes"],
    );

    let mut bytes = Craft::new().f32("abc", &[1], 0).bytes();
    bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_says(&parse(bytes).unwrap_err().to_string(), &["name of tensor number 0"]);
}

#[test]
fn impossible_dimension_counts_are_refused() {
    for count in [0, 5, 9, u32::MAX] {
        let mut craft = Craft::new().f32("t", &[8], 0);
        craft.tensors[0].dimensions = Some(count);
        assert_says(&craft.refusal(), &["`t`", &format!("{count} dimensions"), "1 to 4"]);
    }
}

/// Cut off anywhere, the file is refused without a panic; only padding at the very end may be missing.
#[test]
fn every_prefix_of_a_file_is_refused() {
    let whole = Craft::new()
        .key("a.string", value(8, &string("text")))
        .key("an.array", array(5, 3, &[1; 12]))
        .key("texts", array(8, 2, &[string("x"), string("yz")].concat()))
        .key("flag", value(7, &[1]))
        .f32("first", &[4, 2], 0)
        .f32("second", &[3], 32)
        .bytes();
    assert!(parse(whole.clone()).is_ok());
    for len in 0..whole.len() {
        let error = parse(whole[..len].to_vec()).expect_err("a prefix is no file");
        let text = error.to_string();
        match error {
            GgufError::MissingData { expected, .. } => {
                assert_eq!(expected, whole.len() as u64);
                assert_says(&text, &[&format!("{len} bytes"), &expected.to_string(), "incomplete"]);
            }
            GgufError::Empty => assert_eq!(len, 0),
            GgufError::Truncated { .. }
            | GgufError::StringLength { .. }
            | GgufError::ArrayLength { .. }
            | GgufError::KeyCount { .. }
            | GgufError::TensorCount { .. } => {}
            other => panic!("{len}: {other}"),
        }
    }
}

#[test]
fn other_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| Gguf::open(path).unwrap_err();
    assert_says(&open(dir.path()).to_string(), &["is a folder", "regular file"]);

    let path = dir.path().join("x.gguf");
    let missing = open(&path);
    assert_says(&missing.to_string(), &["x.gguf"]);
    assert!(matches!(missing, GgufError::Io { .. }));

    let cases: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"lmgg\x01\0\0\0", "GGML"),
        (b"tjgg\x03\0\0\0", "GGJT"),
        (b"FUGG\0\0\0\x03", "big-endian"),
        (b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"),
        (b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0", "version 1"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&path, bytes).unwrap();
        assert_says(&open(&path).to_string(), &["x.gguf", expected]);
    }
}

#[cfg(unix)]
#[test]
fn a_device_is_not_opened() {
    let error = Gguf::open("/dev/zero".as_ref()).unwrap_err();
    assert_says(&error.to_string(), &["/dev/zero", "device"]);
}

/// A file cut within its tensor data: the message gives both lengths.
#[test]
fn missing_data_is_reported_with_both_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    let whole = Craft::new().f32("w", &[64, 4], 0).bytes();
    std::fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    let (len, expected) = ((whole.len() - 100).to_string(), whole.len().to_string());
    assert_says(
        &Gguf::open(&path).unwrap_err().to_string(),
        &["cut.gguf", "`w`", &len, &expected, "incomplete"],
    );
}
