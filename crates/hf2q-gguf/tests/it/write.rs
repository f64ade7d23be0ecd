//! The writer: whole files or none, and never over an input.

use std::fs;
use std::path::Path;

use hf2q_gguf::{Gguf, GgufBuilder, GgufError, GgufWriter, Metadata, TensorSpec, TensorType, same_file};

use crate::craft::assert_says;

fn spec(name: &str, shape: &[u64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), ty: TensorType::F32, shape: shape.to_vec() }
}

fn create(path: &Path, tensors: Vec<TensorSpec>) -> Result<GgufWriter, GgufError> {
    GgufWriter::create(path, Metadata::new(), tensors)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = create(&path, vec![spec("a", &[4])]).unwrap();
    writer.write("a", &[0; 8]).unwrap();
    assert_eq!(names(dir.path()).len(), 1, "the temporary file lies beside the output");
    assert!(!path.exists());
    drop(writer);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_dropped_set_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = vec![spec("a", &[64]), spec("b", &[64])];
    let mut writer =
        GgufWriter::create_split(&dir.path().join("m.gguf"), Metadata::new(), tensors, 300).unwrap();
    writer.write("a", &[0; 256]).unwrap();
    assert_eq!(names(dir.path()).len(), 2);
    drop(writer);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn an_old_file_stays_until_the_new_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, "old").unwrap();
    let mut writer = create(&path, vec![spec("a", &[1])]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    writer.write("a", &[1, 2, 3, 4]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    writer.finish().unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
    assert_eq!(names(dir.path()), ["m.gguf"]);
}

#[test]
fn an_unfinished_file_is_not_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = create(&path, vec![spec("a", &[2]), spec("b", &[2])]).unwrap();
    writer.write("a", &[0; 4]).unwrap();
    assert_says(&writer.finish().unwrap_err().to_string(), &["`a` has 4 of its 8 bytes", "1 tensors after"]);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn order_and_sizes_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = create(&dir.path().join("m.gguf"), vec![spec("a", &[2]), spec("b", &[2])]).unwrap();
    let text = |e: Result<(), GgufError>| e.unwrap_err().to_string();
    assert_says(&text(writer.write("b", &[0; 8])), &["`b`", "tensor `a`"]);
    assert_says(&text(writer.write("a", &[0; 9])), &["`a` takes 8 bytes; 9"]);
    writer.write("a", &[0; 5]).unwrap();
    assert_says(&text(writer.write("b", &[0; 8])), &["`b`", "tensor `a` (byte 5 of 8)"]);
    writer.write("a", &[0; 3]).unwrap();
    writer.write("b", &[0; 8]).unwrap();
    assert_says(&text(writer.write("b", &[0; 1])), &["`b`", "the end"]);
    writer.finish().unwrap();
}

#[test]
fn impossible_tensors_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let text = |tensors| create(&path, tensors).unwrap_err().to_string();
    assert_says(&text(vec![spec("a", &[1]), spec("a", &[1])]), &["`a`", "twice"]);
    assert_says(&text(vec![spec("a", &[])]), &["`a`", "0 dimensions"]);
    assert_says(&text(vec![spec("a", &[1; 5])]), &["`a`", "5 dimensions"]);
    assert_says(&text(vec![spec("a", &[3, 0])]), &["`a`", "no elements"]);
    assert_says(&text(vec![spec("", &[3])]), &["0 bytes", "1 to 63"]);
    assert_says(&text(vec![spec(&"n".repeat(64), &[3])]), &["64 bytes", "1 to 63"]);
    assert_says(&text(vec![spec("a", &[1 << 61]), spec("b", &[1])]), &["`a`", "too large"]);
    let half = || spec("a", &[1 << 60]);
    assert_says(
        &text((0..4).map(|i| TensorSpec { name: format!("t{i}"), ..half() }).collect()),
        &["`t3`", "too large"],
    );
    let metadata: Metadata = [("general.alignment", 3_u32)].into_iter().collect();
    let error = GgufWriter::create(&path, metadata, vec![spec("a", &[1])]).unwrap_err();
    assert!(matches!(error, GgufError::Alignment { found: 3 }));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn paths_where_no_file_can_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = create(dir.path(), Vec::new()).unwrap_err();
    assert_says(&error.to_string(), &["folder"]);
    let error = create(&dir.path().join("absent/m.gguf"), Vec::new()).unwrap_err();
    assert_says(&error.to_string(), &["absent"]);
    #[cfg(unix)]
    assert!(matches!(create("/dev/null".as_ref(), Vec::new()), Err(GgufError::NotAFile { .. })));
}

#[test]
fn files_without_tensors_are_possible() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocabulary.gguf");
    GgufBuilder::new().key("a", 1_u32).write(&path).unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!((file.tensors().len(), file.metadata().u32("a").unwrap()), (0, 1));
    let paths = GgufBuilder::new().key("a", 1_u32).write_split(&path, 10).unwrap();
    assert_eq!(paths, [path]);
}

#[test]
fn too_many_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = (0..65536).map(|i| spec(&format!("t{i}"), &[1])).collect();
    let error = GgufWriter::create_split(&dir.path().join("m"), Metadata::new(), tensors, 1).unwrap_err();
    assert_says(&error.to_string(), &["65536 files", "65535"]);
    assert!(names(dir.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn an_input_is_never_the_output() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.gguf");
    GgufBuilder::new().f32("a", &[1], &[1.0]).write(&input).unwrap();
    let before = fs::read(&input).unwrap();
    let (soft, hard, copy) = (dir.path().join("soft"), dir.path().join("hard"), dir.path().join("copy"));
    symlink(&input, &soft).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    fs::copy(&input, &copy).unwrap();
    let dotted = dir.path().join("../").join(dir.path().file_name().unwrap()).join("in.gguf");
    for output in [&input, &soft, &hard, &dotted] {
        assert!(same_file(output, &input) && same_file(&input, output));
        let writer = create(output, vec![spec("a", &[1])]).unwrap();
        let error = writer.protect([&copy, &input]).unwrap_err();
        assert_says(&error.to_string(), &["in.gguf", "same file"]);
    }
    assert_eq!(fs::read(&input).unwrap(), before);
    for output in [copy, dir.path().join("new.gguf")] {
        assert!(!same_file(&output, &input));
        create(&output, Vec::new()).unwrap().protect([&input]).unwrap();
    }
}

/// The parts of a set count too: requantizing a set in place would destroy it.
#[test]
fn a_part_of_a_set_is_never_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let set = GgufBuilder::new().f32("a", &[64], &[0.0; 64]).f32("b", &[64], &[0.0; 64]);
    let paths = set.write_split(&path, 300).unwrap();
    assert_eq!(paths.len(), 2);
    let tensors = vec![spec("a", &[64]), spec("b", &[64])];
    let writer = GgufWriter::create_split(&path, Metadata::new(), tensors, 300).unwrap();
    assert!(matches!(writer.protect(&paths), Err(GgufError::SameFile { .. })));
}

#[cfg(unix)]
#[test]
fn files_are_readable_as_other_files_are() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (ours, plain) = (dir.path().join("m.gguf"), dir.path().join("plain"));
    GgufBuilder::new().write(&ours).unwrap();
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&plain));
}

/// Views outlive the model and the file's name.
#[test]
fn bytes_keep_the_map() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    GgufBuilder::new().f32("a", &[2], &[1.0, 2.0]).write(&path).unwrap();
    let file = Gguf::open(&path).unwrap();
    let view = file.bytes(&file.tensors()[0]);
    drop(file);
    fs::remove_file(&path).unwrap();
    assert_eq!(view.slice(4..8).unwrap().as_ref(), 2_f32.to_le_bytes());
    assert!(view.slice(4..9).is_none() && view.slice(8..8).is_some());
}
