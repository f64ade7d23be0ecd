//! Split sets that are incomplete, renamed or mixed.

use std::fs;
use std::path::{Path, PathBuf};

use hf2q_gguf::{Gguf, GgufBuilder, GgufError, GgufWriter};

use crate::craft::assert_says;

fn builder() -> GgufBuilder {
    let values = |start: u32| (0..64).map(|i| (start + i) as f32).collect::<Vec<f32>>();
    GgufBuilder::new()
        .key("general.name", "set")
        .f32("a", &[64], &values(0))
        .f32("b", &[64], &values(100))
        .f32("c", &[64], &values(200))
}

/// A set of three files in `dir`.
fn three(dir: &Path) -> Vec<PathBuf> {
    let paths = builder().write_split(&dir.join("m.gguf"), 300).unwrap();
    let names: Vec<&str> = paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"]);
    paths
}

fn refusal(path: &Path) -> String {
    Gguf::open(path).expect_err("the set must be refused").to_string()
}

#[test]
fn any_part_opens_the_set() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    for path in &paths {
        let file = Gguf::open(path).unwrap();
        let names: Vec<(&str, usize)> = file.tensors().iter().map(|t| (t.name.as_str(), t.file)).collect();
        assert_eq!(names, [("a", 0), ("b", 1), ("c", 2)]);
        assert_eq!(file.metadata().str("general.name").unwrap(), "set");
        assert_eq!(file.metadata().u32("split.count").unwrap(), 3);
        assert_eq!(file.data(file.tensor("c").unwrap())[..4], 200_f32.to_le_bytes());
        let bytes: u64 = paths.iter().map(|p| fs::metadata(p).unwrap().len()).sum();
        assert_eq!(file.file_bytes(), bytes);
    }
}

#[test]
fn all_missing_parts_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    fs::remove_file(&paths[0]).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    assert_says(&refusal(&paths[1]), &["missing", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"]);
}

#[test]
fn renamed_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let alone = dir.path().join("alone.gguf");
    fs::copy(&paths[0], &alone).unwrap();
    assert_says(&refusal(&alone), &["alone.gguf", "split into 3 files", "restore the original names"]);

    let other_count = dir.path().join("m-00001-of-00004.gguf");
    fs::copy(&paths[0], &other_count).unwrap();
    assert_says(&refusal(&other_count), &["`split.count` is 3, expected 4"]);

    fs::copy(&paths[2], &paths[1]).unwrap();
    assert_says(&refusal(&paths[0]), &["m-00002-of-00003.gguf", "`split.no` is 2, expected 1"]);
}

#[test]
fn parts_of_different_sets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    // As many files, but one tensor more.
    let wrong = builder().f32("d", &[1], &[0.0]).write_split(&other.join("m.gguf"), 500).unwrap();
    assert_eq!(wrong.len(), 3);
    fs::copy(&wrong[1], &paths[1]).unwrap();
    assert_says(&refusal(&paths[0]), &["m-00002-of-00003.gguf", "`split.tensors.count` is 4, expected 3"]);
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    // The second part again, with the third's name for its tensor.
    let mut bytes = fs::read(&paths[1]).unwrap();
    let at = bytes.windows(9).position(|w| w == b"\x01\0\0\0\0\0\0\0b").unwrap();
    bytes[at + 8] = b'c';
    fs::write(&paths[1], bytes).unwrap();
    assert_says(&refusal(&paths[0]), &["m-00003-of-00003.gguf", "`c`", "twice"]);
}

#[test]
fn a_part_with_fewer_tensors_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let keys = [("split.no", 2_u32), ("split.count", 3), ("split.tensors.count", 3)];
    let empty = keys.into_iter().fold(GgufBuilder::new(), |b, (key, value)| b.key(key, value));
    fs::write(&paths[2], empty.to_bytes().unwrap()).unwrap();
    assert_says(&refusal(&paths[1]), &["hold 2 tensors", "says 3"]);
}

#[test]
fn a_name_without_keys_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m-00001-of-00002.gguf");
    builder().write(&path).unwrap();
    assert_says(&refusal(&path), &["part 1 of 2", "rename"]);
    let whole = dir.path().join("m-00001-of-00001.gguf");
    builder().write(&whole).unwrap();
    assert_eq!(Gguf::open(&whole).unwrap().tensors().len(), 3);
}

#[test]
fn bytes_of_a_part_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let error = crate::craft::parse(fs::read(&paths[1]).unwrap()).unwrap_err();
    assert!(matches!(error, GgufError::SplitBytes { count: 3 }));
}

/// A set made one file carries no sign of the set, and the other way round.
#[test]
fn one_file_made_of_a_set_is_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let set = Gguf::open(&three(dir.path())[1]).unwrap();
    let one = dir.path().join("one.gguf");
    let specs = set.tensors().iter().map(hf2q_gguf::TensorInfo::spec).collect();
    let mut writer = GgufWriter::create(&one, set.metadata().clone(), specs).unwrap();
    writer.protect(set.paths()).unwrap();
    for t in set.tensors() {
        writer.write(&t.name, set.data(t)).unwrap();
    }
    writer.finish().unwrap();
    let file = Gguf::open(&one).unwrap();
    assert!(file.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    assert_eq!(fs::read(&one).unwrap(), builder().to_bytes().unwrap());
}
