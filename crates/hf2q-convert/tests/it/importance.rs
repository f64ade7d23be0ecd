//! Importance files: what other programs wrote, damage, merging, experts that were never routed to.

use std::path::{Path, PathBuf};

use hf2q_convert::{Entry, Importance, ImportanceError};
use hf2q_gguf::{Bytes, GgufBuilder, Metadata, TensorType};

use crate::support::root;

const UP: &str = "blk.1.ffn_up_exps.weight";

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures/importance").join(name)
}

fn theirs() -> Importance {
    Importance::open(&[fixture("qwen3-moe.gguf")]).unwrap()
}

fn entry(squares: &[f32], counts: &[u64]) -> Entry {
    Entry { squares: squares.to_vec(), sums: None, counts: counts.to_vec() }
}

/// One tensor `w` with 2 matrices of 3 columns.
fn builder(squares: &[f32], counts: &[f32]) -> GgufBuilder {
    GgufBuilder::new().key("general.type", "imatrix").f32("w.in_sum2", &[squares.len() as u64], squares).f32(
        "w.counts",
        &[1, counts.len() as u64],
        counts,
    )
}

/// The error of opening a file, without the file's name.
#[track_caller]
fn refusal(builder: &GgufBuilder) -> ImportanceError {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.gguf");
    builder.write(&path).unwrap();
    match Importance::open(&[&path]).unwrap_err() {
        ImportanceError::File { path: named, source } if named == path => *source,
        other => panic!("{other} does not name the file"),
    }
}

/// A file of the older binary form.
fn binary(entries: &[(&str, i32, &[f32])], chunks: Option<i32>, text: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, n: usize| out.extend((n as i32).to_le_bytes());
    number(&mut out, entries.len());
    for (name, calls, values) in entries {
        number(&mut out, name.len());
        out.extend(name.as_bytes());
        out.extend(calls.to_le_bytes());
        number(&mut out, values.len());
        out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    out.extend(chunks.into_iter().flat_map(i32::to_le_bytes));
    if let Some(text) = text {
        number(&mut out, text.len());
        out.extend(text.as_bytes());
    }
    out
}

fn open_binary(bytes: &[u8]) -> Result<Importance, ImportanceError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.dat");
    std::fs::write(&path, bytes).unwrap();
    Importance::open(&[path])
}

#[test]
fn a_file_of_llama_imatrix_is_read() {
    let theirs = theirs();
    assert_eq!(theirs.names().len(), 24);
    assert_eq!(theirs.datasets(), ["eval.txt"]);
    assert_eq!((theirs.chunk_count(), theirs.chunk_size()), (1, Some(16)));
    let q = theirs.entry("blk.0.attn_q.weight").unwrap();
    assert_eq!(q.counts, [16]);
    let weights = theirs.weights_for("blk.0.attn_q.weight", q.squares.len(), 1).unwrap().unwrap();
    assert!(weights.neutral.is_empty());
    for (w, s) in weights.all().iter().zip(&q.squares) {
        assert_eq!(*w, s / 16.0);
    }
}

#[test]
fn an_expert_that_was_never_routed_to_weighs_all_columns_the_same() {
    let theirs = theirs();
    let entry = theirs.entry(UP).unwrap();
    assert_eq!(entry.counts, [8, 9, 0, 5, 9, 1]);
    let columns = entry.squares.len() / 6;
    let weights = theirs.weights_for(UP, columns, 6).unwrap().unwrap();
    assert_eq!(weights.neutral, [2]);
    assert!(weights.expert(2).iter().all(|w| *w == 1.0));
    for (expert, count) in [(0, 8.0), (1, 9.0), (3, 5.0), (4, 9.0), (5, 1.0)] {
        let sums = &entry.squares[expert * columns..][..columns];
        assert!(weights.expert(expert).iter().zip(sums).all(|(w, s)| *w == s / count), "expert {expert}");
    }
    let [warning] = theirs.warnings() else { panic!("{:?}", theirs.warnings()) };
    assert!(
        warning.contains("1 of 6 in blk.1.ffn_down_exps.weight") && warning.contains("3 more"),
        "{warning}"
    );
}

#[test]
fn both_forms_of_a_file_say_the_same() {
    let (new, old) = (theirs(), Importance::open(&[fixture("qwen3-moe.dat")]).unwrap());
    assert_eq!(new.names().collect::<Vec<_>>(), old.names().collect::<Vec<_>>());
    assert_eq!((old.datasets(), old.chunk_count(), old.chunk_size()), (new.datasets(), 1, None));
    for name in new.names() {
        let entry = new.entry(name).unwrap();
        let (experts, columns) = (entry.counts.len(), entry.squares.len() / entry.counts.len());
        let a = new.weights_for(name, columns, experts).unwrap().unwrap();
        let b = old.weights_for(name, columns, experts).unwrap().unwrap();
        let close = |(x, y): (&f32, &f32)| (x - y).abs() <= x.abs() * 1e-6;
        assert!(a.all().iter().zip(b.all()).all(close), "{name}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("again.gguf");
    let theirs = theirs();
    assert!(theirs.entry(UP).unwrap().sums.is_some());
    theirs.write(&path, &[]).unwrap();
    assert_eq!(Importance::open(&[&path]).unwrap(), theirs);
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn the_older_form_is_written_as_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.gguf");
    let old = open_binary(&binary(&[("blk.0.a.weight", 3, &[3.0, 6.0])], Some(3), None)).unwrap();
    old.write(&path, &[]).unwrap();
    let new = Importance::open(&[&path]).unwrap();
    assert_eq!(new.entry("blk.0.a.weight").unwrap(), &entry(&[1536.0, 3072.0], &[1536]));
    assert_eq!((new.chunk_count(), new.chunk_size()), (3, Some(512)));
}

#[test]
fn an_input_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    theirs().write(&path, &[]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let link = dir.path().join("b.gguf");
    std::fs::hard_link(&path, &link).unwrap();
    for input in [&path, &link] {
        assert!(theirs().write(&path, &[input]).unwrap_err().to_string().contains("a.gguf"));
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn merging_adds_sums_and_counts() {
    let path = fixture("qwen3-moe.gguf");
    let twice = Importance::open(&[&path, &path]).unwrap();
    let once = theirs();
    assert_eq!(twice.datasets(), ["eval.txt", "eval.txt"]);
    assert_eq!(twice.chunk_count(), 2);
    for name in once.names() {
        let (a, b) = (once.entry(name).unwrap(), twice.entry(name).unwrap());
        assert!(a.counts.iter().zip(&b.counts).all(|(x, y)| 2 * x == *y), "{name}");
        assert!(a.squares.iter().zip(&b.squares).all(|(x, y)| 2.0 * x == *y), "{name}");
        let columns = a.squares.len() / a.counts.len();
        let weights = |i: &Importance| i.weights_for(name, columns, a.counts.len()).unwrap();
        assert_eq!(weights(&once), weights(&twice));
    }
}

#[test]
fn merging_keeps_what_one_file_alone_has() {
    let mut a = Importance::new(4, vec!["a".into()]);
    a.add("x", entry(&[1.0, 2.0], &[4])).unwrap();
    a.add("stack", entry(&[1.0, 2.0], &[2, 0])).unwrap();
    let mut b = Importance::new(4, vec!["b".into()]);
    b.add("y", entry(&[5.0], &[8])).unwrap();
    b.add("stack", entry(&[1.0, 7.0], &[3])).unwrap();
    a.merge(b).unwrap();
    assert_eq!(a.names().collect::<Vec<_>>(), ["stack", "x", "y"]);
    assert_eq!(a.entry("x").unwrap(), &entry(&[1.0, 2.0], &[4]));
    // One count stands for both matrices.
    assert_eq!(a.entry("stack").unwrap(), &entry(&[2.0, 9.0], &[5, 3]));
    assert_eq!((a.chunk_count(), a.datasets()), (2, &["a".to_owned(), "b".to_owned()][..]));
}

#[test]
fn an_older_file_is_merged_in_the_chunks_of_the_newer_one() {
    let mut new = Importance::new(16, vec![]);
    new.add("x", entry(&[32.0, 0.0], &[16])).unwrap();
    // Two chunks with mean squares 1 and 3.
    new.merge(open_binary(&binary(&[("x", 2, &[2.0, 6.0])], Some(2), None)).unwrap()).unwrap();
    assert_eq!(new.entry("x").unwrap(), &entry(&[64.0, 96.0], &[48]));
    assert_eq!(new.chunk_count(), 3);
}

#[test]
fn files_of_two_models_are_not_merged() {
    let mut a = Importance::new(4, vec![]);
    a.add("x", entry(&[1.0, 2.0], &[4])).unwrap();
    let text = a.add("x", entry(&[1.0, 2.0, 3.0], &[4])).unwrap_err().to_string();
    assert!(text.contains("x has 3 values") && text.contains("earlier file has 2"), "{text}");
    let mut stack = Importance::new(4, vec![]);
    stack.add("x", entry(&[0.0; 6], &[1, 2, 3])).unwrap();
    assert!(matches!(stack.add("x", entry(&[0.0; 6], &[1, 2])), Err(ImportanceError::Merge { .. })));
    let huge = entry(&[f32::MAX], &[1]);
    let mut sum = Importance::new(4, vec![]);
    sum.add("x", huge.clone()).unwrap();
    assert!(matches!(sum.add("x", huge), Err(ImportanceError::Value { .. })));
}

#[test]
fn another_models_importance_is_refused() {
    let theirs = theirs();
    let text = theirs.weights_for("blk.0.attn_q.weight", 999, 1).unwrap_err().to_string();
    assert!(
        text.contains("blk.0.attn_q.weight") && text.contains("64 values") && text.contains("999"),
        "{text}"
    );
    let text = theirs.weights_for(UP, 64, 7).unwrap_err().to_string();
    assert!(text.contains("384 values") && text.contains("448"), "{text}");
    assert_eq!(theirs.weights_for("blk.9.attn_q.weight", 64, 1).unwrap(), None);
    assert_eq!(theirs.weights_for("blk.9.ffn_up_exps.weight", 64, 6).unwrap(), None);
    let mut tables = Importance::new(4, vec![]);
    for name in ["token_embd.weight", "per_layer_token_embd.weight"] {
        tables.add(name, entry(&[1.0, 2.0], &[4])).unwrap();
        assert_eq!(tables.weights_for(name, 3, 1).unwrap(), None);
        assert_eq!(tables.weights_for(name, 2, 1).unwrap().unwrap().all(), [0.25, 0.5]);
    }
}

#[test]
fn experts_named_one_by_one_make_a_stack() {
    let file = binary(
        &[
            ("blk.0.ffn_up.0.weight", 2, &[2.0, 4.0]),
            ("blk.0.ffn_up.3.weight", 4, &[4.0, 40.0]),
            ("blk.0.ffn_up.1.weight", 1, &[7.0, 0.0]),
            ("blk.0.ffn_down.0.weight", 1, &[1.0, 1.0, 1.0]),
        ],
        None,
        None,
    );
    let old = open_binary(&file).unwrap();
    let up = old.weights_for("blk.0.ffn_up_exps.weight", 2, 4).unwrap().unwrap();
    assert_eq!(up.all(), [1.0, 2.0, 7.0, 0.0, 1.0, 1.0, 1.0, 10.0]);
    assert_eq!(up.neutral, [2]);
    let text = old.weights_for("blk.0.ffn_down_exps.weight", 2, 4).unwrap_err().to_string();
    assert!(text.contains("blk.0.ffn_down.0.weight has 3 values"), "{text}");
    assert_eq!(old.weights_for("blk.0.ffn_gate_exps.weight", 2, 4).unwrap(), None);
}

#[test]
fn one_of_128_experts_without_rows_costs_the_others_nothing() {
    let columns = 3;
    let mut counts = vec![2_u64; 128];
    counts[77] = 0;
    let squares: Vec<f32> =
        (0..128 * columns).map(|i| if i / columns == 77 { 0.0 } else { i as f32 }).collect();
    let mut all = Importance::new(512, vec![]);
    all.add("blk.0.ffn_down_exps.weight", entry(&squares, &counts)).unwrap();
    let weights = all.weights_for("blk.0.ffn_down_exps.weight", columns, 128).unwrap().unwrap();
    assert_eq!(weights.neutral, [77]);
    for (expert, sums) in squares.chunks(columns).enumerate() {
        let expected = if expert == 77 { vec![1.0; columns] } else { sums.iter().map(|s| s / 2.0).collect() };
        assert_eq!(weights.expert(expert), expected, "expert {expert}");
    }
    assert!(all.unrouted().unwrap().contains("1 of 128 in blk.0.ffn_down_exps.weight"));
}

#[test]
fn values_that_no_data_gives() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0] {
        let error = refusal(&builder(&[1.0, 2.0, 3.0, 4.0, bad, 6.0], &[4.0, 4.0]));
        let text = error.to_string();
        assert!(text.contains("w: the sum of squares of column 1 of matrix 1"), "{text}");
        if bad != f32::INFINITY {
            let text = refusal(&builder(&[0.0; 6], &[4.0, bad])).to_string();
            assert!(text.contains("count of matrix 1"), "{text}");
        }
    }
    assert!(matches!(refusal(&builder(&[0.0; 6], &[4.0, 1e30])), ImportanceError::Value { .. }));
    let sums = builder(&[0.0; 6], &[1.0, 1.0]).f32("w.in_sum", &[6], &[-3.0, 0.0, 1.0, 0.0, f32::NAN, 1.0]);
    assert!(refusal(&sums).to_string().contains("w: the sum of column 1 of matrix 1 is NaN"));
}

#[test]
fn tensors_that_do_not_belong_together() {
    assert!(matches!(refusal(&builder(&[0.0; 5], &[1.0, 1.0])), ImportanceError::Sums { found: 5, .. }));
    let short = builder(&[0.0; 6], &[1.0, 1.0]).f32("w.in_sum", &[3], &[0.0; 3]);
    assert!(matches!(refusal(&short), ImportanceError::Sums { found: 3, .. }));
    let kind = || GgufBuilder::new().key("general.type", "imatrix");
    let text = refusal(&kind().f32("w.in_sum2", &[3], &[0.0; 3])).to_string();
    assert!(text.contains("w.in_sum2 is there, but w.counts is not"), "{text}");
    for other in ["w.counts", "w.in_sum"] {
        let text = refusal(&kind().f32(other, &[1], &[1.0])).to_string();
        assert!(text.contains(other) && text.contains("w.in_sum2 is not"), "{text}");
    }
    let half = kind().tensor("w.in_sum2", TensorType::F16, &[3], vec![0; 6]).f32("w.counts", &[1], &[1.0]);
    assert!(refusal(&half).to_string().contains("w.in_sum2 is of type f16"));
}

#[test]
fn files_of_another_kind() {
    let model = builder(&[0.0; 6], &[1.0, 1.0]).key("general.type", "model");
    assert!(refusal(&model).to_string().contains("\"model\""));
    assert!(refusal(&GgufBuilder::new().f32("norm", &[1], &[1.0])).to_string().contains("in_sum2"));
    // Files of before the key are known by their tensors.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain.gguf");
    let plain = GgufBuilder::new().f32("w.in_sum2", &[2], &[2.0, 4.0]).f32("w.counts", &[1], &[2.0]);
    plain.write(&path).unwrap();
    assert_eq!(
        Importance::open(&[&path]).unwrap().weights_for("w", 2, 1).unwrap().unwrap().all(),
        [1.0, 2.0]
    );
    for (name, text) in [("note.txt", "these are words, not numbers"), ("empty.gguf", ""), ("x", "{}")] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        assert!(Importance::open(&[&path]).unwrap_err().to_string().contains(name));
    }
    assert!(Importance::open(&[dir.path().join("absent")]).unwrap_err().to_string().contains("absent"));
    assert!(matches!(Importance::open::<&Path>(&[]), Err(ImportanceError::NoFile)));
}

#[test]
fn older_files_that_are_damaged() {
    let good = binary(&[("a", 1, &[1.0, 2.0]), ("bb", 2, &[3.0])], Some(2), Some("text"));
    assert_eq!(open_binary(&good).unwrap().datasets(), ["text"]);
    // Whole without the chunks, and without the text's name, which both may be missing.
    let whole = [good.len() - 4 - 4 - 4, good.len() - 4 - 4];
    for len in 0..good.len() {
        assert_eq!(open_binary(&good[..len]).is_ok(), whole.contains(&len), "{len} of {}", good.len());
    }
    for bad in [
        binary(&[], None, None),
        binary(&[("a", 1, &[])], None, None),
        binary(&[("", 1, &[1.0])], None, None),
        binary(&[("a", -1, &[1.0])], None, None),
        binary(&[("a", 1, &[f32::NAN])], None, None),
        binary(&[("a", 1, &[-1.0])], None, None),
        binary(&[("a", 1, &[1.0]), ("a", 1, &[1.0])], None, None),
        [&i32::MAX.to_le_bytes()[..], &good[4..]].concat(),
        [&[1, 0, 0, 0, 255, 255, 255, 127][..], &good[8..]].concat(),
    ] {
        let error = open_binary(&bad).unwrap_err();
        assert!(error.to_string().contains("old.dat"), "{error}");
    }
    // Without calls the values are taken as they are.
    let zero = open_binary(&binary(&[("a", 0, &[5.0])], None, None)).unwrap();
    assert_eq!(zero.weights_for("a", 1, 1).unwrap().unwrap().all(), [5.0]);
}

#[test]
fn no_damage_makes_a_panic() {
    for name in ["qwen3-moe.gguf", "qwen3-moe.dat"] {
        let good = std::fs::read(fixture(name)).unwrap();
        for i in 0..3000_usize {
            let mut bytes = good.clone();
            // Mostly in the header, where sizes are.
            let at = if i % 3 == 0 { i * 131 % bytes.len() } else { i * 7 % 2000 };
            bytes[at] ^= 1 << (i % 8);
            bytes.truncate(bytes.len() - i % 5 * (i % 7));
            if let Ok(read) = Importance::parse(Bytes::from_vec(bytes)) {
                for name in read.names() {
                    let _ = read.weights_for(name, 64, 6);
                }
            }
        }
    }
}

#[test]
fn a_quantized_file_says_what_it_was_made_with() {
    let mut metadata = Metadata::new();
    theirs().note("dir/imatrix.gguf", &mut metadata);
    assert_eq!(metadata.str("quantize.imatrix.file").unwrap(), "dir/imatrix.gguf");
    assert_eq!(metadata.str("quantize.imatrix.dataset").unwrap(), "eval.txt");
    assert_eq!(metadata.u32("quantize.imatrix.entries_count").unwrap(), 24);
    assert_eq!(metadata.u32("quantize.imatrix.chunks_count").unwrap(), 1);
    let mut some = theirs();
    some.retain(|name| name.contains("attn_q"));
    assert_eq!(some.names().len(), 3);
}
