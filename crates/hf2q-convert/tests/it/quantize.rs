//! GGUF files as sources.

use std::path::Path;

use hf2q_convert::{ConvertError, Options, Recipe};
use hf2q_gguf::{Gguf, GgufWriter, TensorType};

use crate::support::{Silent, convert, root, try_convert};

fn tiny() -> std::path::PathBuf {
    root().join("fixtures/tiny/gemma4-moe")
}

fn split(input: &Path, output: &Path) -> Vec<std::path::PathBuf> {
    let options = Options { split_bytes: Some(100_000), ..Options::new(Recipe::from_name("f16").unwrap()) };
    hf2q_convert::convert(input, output, options, &mut Silent::default()).unwrap().paths
}

#[test]
fn a_file_quantizes_as_its_checkpoint_does() {
    let (dir, _, _) = convert(&tiny(), "f32");
    let output = dir.path().join("q8.gguf");
    try_convert(&dir.path().join("out.gguf"), &output, "q8_0").unwrap();
    let (_direct_dir, direct, _) = convert(&tiny(), "q8_0");
    let quantized = Gguf::open(&output).unwrap();
    assert_eq!(quantized.tensors().len(), direct.tensors().len());
    for tensor in direct.tensors() {
        let other = quantized.tensor(&tensor.name).unwrap();
        assert_eq!((other.ty, &other.shape), (tensor.ty, &tensor.shape), "{}", tensor.name);
        assert!(quantized.data(other) == direct.data(tensor), "{}", tensor.name);
    }
    for (key, value) in direct.metadata().iter().filter(|(key, _)| !key.starts_with("general.")) {
        assert_eq!(quantized.metadata().get(key), Some(value), "{key}");
    }
    assert_eq!(quantized.metadata().u32("general.file_type").unwrap(), 7);
}

#[test]
fn a_split_set_becomes_one_file_without_split_keys() {
    let dir = tempfile::tempdir().unwrap();
    let parts = split(&tiny(), &dir.path().join("set.gguf"));
    assert!(parts.len() > 2, "{parts:?}");
    let output = dir.path().join("one.gguf");
    try_convert(&parts[1], &output, "q8_0").unwrap();
    let one = Gguf::open(&output).unwrap();
    assert_eq!(one.paths().len(), 1);
    assert!(one.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
}

#[test]
fn quantized_sources_come_with_a_warning() {
    let (dir, _, summary) = convert(&tiny(), "q8_0");
    assert!(summary.warnings.iter().all(|w| !w.contains("quantized already")), "{:?}", summary.warnings);
    let again = try_convert(&dir.path().join("out.gguf"), &dir.path().join("again.gguf"), "q4_0").unwrap();
    assert!(again.warnings.iter().any(|w| w.contains("quantized already")), "{:?}", again.warnings);
}

/// The path itself, a symbolic link to it, a hard link to it, and a part of a set.
#[cfg(unix)]
#[test]
fn an_output_that_is_the_input_is_refused() {
    let (dir, _, _) = convert(&tiny(), "f32");
    let input = dir.path().join("out.gguf");
    let before = std::fs::read(&input).unwrap();
    let (soft, hard) = (dir.path().join("soft.gguf"), dir.path().join("hard.gguf"));
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    for output in [&input, &soft, &hard] {
        let error = try_convert(&input, output, "q8_0").unwrap_err();
        assert!(matches!(&error, ConvertError::Gguf(hf2q_gguf::GgufError::SameFile { .. })), "{error}");
    }
    let parts = split(&tiny(), &dir.path().join("set.gguf"));
    try_convert(&parts[0], &parts[1], "q8_0").unwrap_err();
    assert!(std::fs::read(&input).unwrap() == before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3 + parts.len(), "nothing new is left");
}

#[test]
fn a_damaged_source_is_refused_by_tensor_and_leaves_nothing() {
    let (dir, gguf, _) = convert(&tiny(), "q8_0");
    let input = dir.path().join("bad.gguf");
    let specs: Vec<_> = gguf.tensors().iter().map(hf2q_gguf::TensorInfo::spec).collect();
    let mut writer = GgufWriter::create(&input, gguf.metadata().clone(), specs).unwrap();
    for tensor in gguf.tensors() {
        let mut data = gguf.data(tensor).to_vec();
        if tensor.name == "blk.0.attn_q.weight" {
            assert_eq!(tensor.ty, TensorType::Q8_0);
            data[..2].copy_from_slice(&[0, 0x7e]);
        }
        writer.write(&tensor.name, &data).unwrap();
    }
    writer.finish().unwrap();
    let output = dir.path().join("x.gguf");
    // One is copied, the other encoded.
    for ty in ["q8_0", "f16"] {
        let error = try_convert(&input, &output, ty).unwrap_err().to_string();
        assert!(error.contains("blk.0.attn_q.weight"), "{error}");
        assert!(!output.exists());
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}
