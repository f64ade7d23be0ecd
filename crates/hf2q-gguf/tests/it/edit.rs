//! Metadata of files that exist already.

use std::fs;
use std::path::{Path, PathBuf};

use hf2q_gguf::{Array, Edit, Gguf, GgufBuilder, GgufError, TensorType, Value};
use proptest::prelude::*;
use proptest::proptest;

use crate::craft::{Craft, array, assert_says, string, value};

fn builder() -> GgufBuilder {
    GgufBuilder::new()
        .key("general.architecture", "llama")
        .key("general.name", "before")
        .key("tokenizer.ggml.tokens", ["a", "b", "c"].map(str::to_owned).to_vec())
        .key("tokenizer.ggml.scores", vec![0.0_f32, 1.0, f32::NAN])
        .f32("norm", &[5], &[1.0, -0.0, f32::MIN, 3.5, 4.0])
        .tensor("codes", TensorType::Q4_0, &[32, 3], (0..54).collect())
}

fn written(dir: &Path) -> PathBuf {
    let path = dir.join("m.gguf");
    builder().write(&path).unwrap();
    path
}

/// Names, shapes, types and data.
fn tensors(path: &Path) -> Vec<(String, Vec<u64>, TensorType, Vec<u8>)> {
    let file = Gguf::open(path).unwrap();
    let one = |t: &hf2q_gguf::TensorInfo| (t.name.clone(), t.shape.clone(), t.ty, file.data(t).to_vec());
    file.tensors().iter().map(one).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn go_on(_: u64, _: u64) -> bool {
    true
}

#[test]
fn changes_appear_and_everything_else_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let before = tensors(&path);
    let mut edit = Edit::open(&path).unwrap();
    edit.set("general.name", Value::from("a much longer name than before, so that all data moves")).unwrap();
    edit.set("general.new", Value::U8(7)).unwrap();
    edit.unset("tokenizer.ggml.scores").unwrap_err();
    let keys: Vec<String> = edit.changes().into_iter().map(|c| c.key).collect();
    assert_eq!(keys, ["general.name", "general.new"]);
    assert_eq!(edit.write(None, &mut go_on).unwrap(), std::slice::from_ref(&path));
    assert_eq!(tensors(&path), before);
    let file = Gguf::open(&path).unwrap();
    assert!(file.metadata().str("general.name").unwrap().starts_with("a much longer"));
    assert_eq!(file.metadata().get("general.new"), Some(&Value::U8(7)));
    assert_eq!(file.metadata().strings("tokenizer.ggml.tokens").unwrap().len(), 3);
    assert_eq!(names(dir.path()), ["m.gguf"]);
}

#[test]
fn an_edit_that_is_undone_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let before = fs::read(&path).unwrap();
    for name in ["after", "before"] {
        let mut edit = Edit::open(&path).unwrap();
        edit.set("general.name", Value::from(name)).unwrap();
        edit.write(None, &mut go_on).unwrap();
    }
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_value_that_is_set_to_itself_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut edit = Edit::open(&written(dir.path())).unwrap();
    edit.set("general.name", Value::from("before")).unwrap();
    // NaN differs from itself, the stored bytes do not.
    edit.set("tokenizer.ggml.scores", Value::from(vec![0.0_f32, 1.0, f32::NAN])).unwrap();
    assert_eq!(edit.changes(), []);
    edit.set("tokenizer.ggml.scores", Value::from(vec![-0.0_f32, 1.0, f32::NAN])).unwrap();
    assert_eq!(edit.changes().len(), 1);
}

#[test]
fn keys_that_hold_the_file_together_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let mut edit = Edit::open(&path).unwrap();
    let strings = |n: usize| Value::from(vec![String::new(); n]);
    for (key, value, part) in [
        ("general.alignment", Value::U32(64), "places of all tensors"),
        ("split.count", Value::U16(2), "split model"),
        ("general.architecture", Value::from("qwen3"), "force"),
        ("tokenizer.ggml.tokens", strings(4), "3 tokens; it would have 4"),
        ("tokenizer.ggml.token_type", Value::from(vec![1_i32]), "3 tokens; it would have 1"),
        ("tokenizer.ggml.scores", Value::F32(0.5), "would be f32"),
        ("no key", Value::U8(0), "letters, digits"),
        ("", Value::U8(0), "letters, digits"),
    ] {
        let message = edit.set(key, value).unwrap_err().to_string();
        assert_says(&message, &[key, part]);
    }
    assert_says(&edit.unset("general.architecture").unwrap_err().to_string(), &["force"]);
    assert!(matches!(edit.unset("absent"), Err(GgufError::AbsentKey { .. })));
    assert_eq!(edit.changes(), []);
    let mut edit = edit.force();
    edit.set("general.architecture", Value::from("qwen3")).unwrap();
    edit.set("tokenizer.ggml.tokens", strings(4)).unwrap();
    edit.set("general.alignment", Value::U32(64)).unwrap_err();
    edit.set("split.count", Value::U16(2)).unwrap_err();
    // Equal lengths need no force.
    Edit::open(&path).unwrap().set("tokenizer.ggml.tokens", strings(3)).unwrap();
}

#[test]
fn an_output_gets_the_edit_and_the_original_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let before = fs::read(&path).unwrap();
    let output = dir.path().join("out.gguf");
    let mut edit = Edit::open(&path).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    edit.write(Some(&output), &mut go_on).unwrap();
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(tensors(&output), tensors(&path));
    let message = edit.write(Some(&output), &mut go_on).unwrap_err().to_string();
    assert_says(&message, &["out.gguf", "exists already"]);
    // The file itself as output is an edit in place.
    edit.write(Some(&path), &mut go_on).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().metadata().str("general.name").unwrap(), "after");
}

#[test]
fn tensors_of_unknown_types_are_carried_along() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut bytes = Craft::new()
        .key("general.name", value(8, &string("x")))
        .f32("a", &[8], 0)
        .tensor("odd", &[256, 2], 777, 32)
        .tensor("odder", &[1, 1], 778, 96)
        .data(200)
        .bytes();
    let data = bytes.len() - 200;
    bytes[data..].iter_mut().zip(0..).for_each(|(b, i)| *b = i);
    fs::write(&path, &bytes).unwrap();
    Gguf::open(&path).unwrap_err();
    let mut edit = Edit::open(&path).unwrap();
    let types: Vec<u32> = edit.tensors().iter().map(|t| t.ty).collect();
    assert_eq!(types, [0, 777, 778]);
    edit.set("general.name", Value::from("a longer name that takes more room than the padding has")).unwrap();
    edit.write(None, &mut go_on).unwrap();
    let after = fs::read(&path).unwrap();
    assert!(after.len() > bytes.len() && after.ends_with(&bytes[data..]));
    let again = Edit::open(&path).unwrap();
    assert_eq!(again.tensors(), edit.tensors());
}

#[test]
fn version_alignment_and_files_without_tensors_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut old = Craft::new().key("k", value(4, &7_u32.to_le_bytes()));
    old.version = 2;
    // Ends without padding, as files with nothing but a vocabulary do.
    let mut bytes = old.bytes();
    bytes.truncate(24 + 8 + 1 + 8);
    fs::write(&path, &bytes).unwrap();
    let mut edit = Edit::open(&path).unwrap();
    edit.set("k", Value::U32(8)).unwrap();
    edit.write(None, &mut go_on).unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!((file.version(), file.metadata().u32("k").unwrap()), (2, 8));

    builder().key("general.alignment", 4096_u32).write(&path).unwrap();
    let before = tensors(&path);
    let mut edit = Edit::open(&path).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    edit.write(None, &mut go_on).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors()[0].offset % 4096, 0);
    assert_eq!(tensors(&path), before);
}

#[test]
fn only_the_first_file_of_a_set_is_written_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let paths = builder().write_split(&dir.path().join("m.gguf"), 1).unwrap();
    assert_eq!(paths.len(), 2);
    let (before, second) = (tensors(&paths[0]), fs::read(&paths[1]).unwrap());
    let mut edit = Edit::open(&paths[1]).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    assert_eq!(edit.write(None, &mut go_on).unwrap(), paths[..1]);
    assert!(fs::read(&paths[1]).unwrap() == second);
    let file = Gguf::open(&paths[1]).unwrap();
    assert_eq!(file.metadata().str("general.name").unwrap(), "after");
    assert_eq!(tensors(&paths[0]), before);
    // Elsewhere the set is written whole, and under its own name it is an edit in place.
    edit.set("general.name", Value::from("elsewhere")).unwrap();
    let outputs = edit.write(Some(&dir.path().join("n.gguf")), &mut go_on).unwrap();
    assert_eq!(outputs.len(), 2);
    assert_eq!(tensors(&outputs[1]), before);
    assert_eq!(edit.write(Some(&dir.path().join("m.gguf")), &mut go_on).unwrap().len(), 1);
    fs::remove_file(&paths[1]).unwrap();
    assert!(matches!(Edit::open(&paths[0]), Err(GgufError::SplitMissing { .. })));
}

#[test]
fn wrong_split_keys_can_be_taken_out_of_a_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let paths = builder().write_split(&dir.path().join("m.gguf"), 1).unwrap();
    let alone = dir.path().join("alone.gguf");
    fs::rename(&paths[0], &alone).unwrap();
    assert_says(&Edit::open(&alone).unwrap_err().to_string(), &["-00001-of-00002.gguf"]);
    let mut edit = Edit::open_alone(&alone).unwrap();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        edit.unset(key).unwrap();
    }
    edit.write(None, &mut go_on).unwrap();
    assert_eq!(Gguf::open(&alone).unwrap().tensors().len(), 1);
}

#[test]
fn stopping_or_failing_leaves_the_original_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let before = fs::read(&path).unwrap();
    let mut edit = Edit::open(&path).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    for stop_at in [1, 2] {
        let mut calls = 0;
        let stopped = edit.write(None, &mut |_, _| {
            calls += 1;
            calls < stop_at
        });
        assert!(matches!(stopped, Err(GgufError::Cancelled)), "{stopped:?}");
    }
    let nowhere = edit.write(Some(&dir.path().join("absent/out.gguf")), &mut go_on);
    assert!(matches!(nowhere, Err(GgufError::Io { .. })), "{nowhere:?}");
    // Another program appends while the file is copied.
    let growing = edit.write(None, &mut |_, _| {
        fs::write(&path, [&before[..], b"more"].concat()).unwrap();
        true
    });
    assert!(matches!(growing, Err(GgufError::Changed { .. })), "{growing:?}");
    fs::write(&path, &before).unwrap();
    assert_eq!(names(dir.path()), ["m.gguf"]);
}

#[test]
fn an_output_that_appears_meanwhile_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let output = dir.path().join("out.gguf");
    let mut edit = Edit::open(&path).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    let late = edit.write(Some(&output), &mut |_, _| {
        fs::write(&output, "another program's").unwrap();
        true
    });
    assert!(matches!(&late, Err(GgufError::OutputExists { path }) if *path == output), "{late:?}");
    assert_eq!(fs::read(&output).unwrap(), b"another program's");
    assert_eq!(names(dir.path()), ["m.gguf", "out.gguf"]);
}

#[test]
fn a_set_whose_first_output_appears_meanwhile_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let set = builder().write_split(&dir.path().join("m.gguf"), 1).unwrap();
    let first = dir.path().join("out-00001-of-00002.gguf");
    let late = Edit::open(&set[0]).unwrap().write(Some(&dir.path().join("out.gguf")), &mut |_, _| {
        fs::write(&first, "another program's").unwrap();
        true
    });
    assert!(matches!(&late, Err(GgufError::OutputExists { path }) if *path == first), "{late:?}");
    assert_eq!(fs::read(&first).unwrap(), b"another program's");
    assert_eq!(
        names(dir.path()),
        ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "out-00001-of-00002.gguf"]
    );
}

#[cfg(unix)]
#[test]
fn links_are_replaced_and_permissions_kept() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let before = fs::read(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.path().join("link.gguf");
    std::os::unix::fs::symlink("m.gguf", &link).unwrap();
    let mut edit = Edit::open(&link).unwrap();
    edit.set("general.name", Value::from("after")).unwrap();
    edit.write(None, &mut go_on).unwrap();
    assert!(fs::read(&path).unwrap() == before);
    let meta = fs::symlink_metadata(&link).unwrap();
    assert!(meta.is_file() && meta.permissions().mode() & 0o777 == 0o640);
    // A link that leads nowhere is still something that would be replaced.
    let dangling = dir.path().join("dangling.gguf");
    std::os::unix::fs::symlink("absent", &dangling).unwrap();
    assert!(matches!(edit.write(Some(&dangling), &mut go_on), Err(GgufError::OutputExists { .. })));
}

#[test]
fn damaged_files_are_not_edited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let sound = builder().to_bytes().unwrap();
    let cut = sound[..sound.len() - 60].to_vec();
    let offset = Craft::new().f32("a", &[8], 0).tensor("odd", &[4], 777, u64::MAX - 31).bytes();
    let far = Craft::new().f32("a", &[8], 0).tensor("odd", &[4], 777, 1 << 40).bytes();
    let nested = Craft::new().key("k", array(9, 1, &[0; 12])).bytes();
    for (bytes, part) in [
        (cut, "promises"),
        (offset, "does not fit"),
        (far, "promises"),
        (nested, "array of arrays"),
        (b"GGUF\0\0\0\x03".to_vec(), "big-endian"),
        (Vec::new(), "empty"),
    ] {
        fs::write(&path, &bytes).unwrap();
        assert_says(&Edit::open(&path).unwrap_err().to_string(), &["m.gguf", part]);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i64>().prop_map(Value::I64),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".{0,40}".prop_map(Value::String),
        prop::collection::vec(any::<u16>(), 0..20).prop_map(|v| Value::Array(Array::U16(v))),
        prop::collection::vec("[a-z]{0,6}", 0..5).prop_map(|v| Value::Array(Array::String(v))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_set_is_read_and_tensors_stay(values in prop::collection::vec(("[a-z.]{1,9}", any_value()), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let before = tensors(&path);
        let mut edit = Edit::open(&path).unwrap();
        for (key, value) in &values {
            let key = format!("x.{key}");
            edit.set(&key, value.clone()).unwrap();
        }
        edit.write(None, &mut go_on).unwrap();
        prop_assert_eq!(tensors(&path), before);
        let again = Edit::open(&path).unwrap();
        prop_assert!(Edit::changes(&again).is_empty());
        for (key, value) in again.original().iter().filter(|(key, _)| key.starts_with("x.")) {
            let last = values.iter().rev().find(|(k, _)| format!("x.{k}") == key).unwrap();
            prop_assert_eq!(format!("{:?}", value), format!("{:?}", &last.1));
        }
    }
}

#[test]
fn no_changed_byte_makes_a_panic_or_a_worse_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let sound = builder().to_bytes().unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let Ok(mut edit) = Edit::open(&path) else { continue };
        // Writing waits for the disk, so that few are written.
        if at % 23 != 0 || edit.set("x", Value::U8(1)).is_err() {
            continue;
        }
        let before = Gguf::open(&path).map(|_| tensors(&path)).ok();
        edit.write(None, &mut go_on).unwrap();
        assert_eq!(before.as_ref().map(|_| tensors(&path)), before, "byte {at}");
        assert!(Edit::open(&path).is_ok(), "byte {at}");
    }
}
