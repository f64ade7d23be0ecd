//! Files are found sound, and what is wrong with others is named.

use std::path::PathBuf;

use hf2q_convert::{ConvertError, Problem, Source, Verification, verify};
use hf2q_gguf::{Gguf, GgufBuilder, TensorType, Value};

use crate::support::{Silent, checkpoints, convert, root};

fn check(gguf: &Gguf, source: Option<&Source>) -> Verification {
    let mut progress = Silent::default();
    let found = verify(gguf, source, 0.5, &mut progress).unwrap();
    assert_eq!(progress.done, progress.total);
    found
}

fn demo() -> PathBuf {
    root().join("models/demo/tiny-moe")
}

/// The file again, with other metadata or tensors.
fn rebuilt(gguf: &Gguf, edit: impl Fn(GgufBuilder, &str) -> Option<GgufBuilder>) -> Gguf {
    let mut builder = GgufBuilder::new().metadata(gguf.metadata());
    for t in gguf.tensors() {
        builder = match edit(builder.clone(), &t.name) {
            Some(edited) => edited,
            None => builder.tensor(&t.name, t.ty, &t.shape, gguf.data(t).to_vec()),
        };
    }
    builder.open().unwrap()
}

#[track_caller]
fn only_problem(found: &Verification, expected: &Problem) {
    assert_eq!(found.problems, std::slice::from_ref(expected));
}

#[test]
fn what_is_converted_is_found_sound_against_its_source() {
    for folder in checkpoints() {
        let source = Source::open(&folder).unwrap();
        let name = folder.display();
        for (ty, limit) in [("f32", 0.0), ("bf16", 0.004), ("q8_0", 0.02)] {
            let (_dir, gguf, _) = convert(&folder, ty);
            let found = check(&gguf, Some(&source));
            assert_eq!(found.problems, [], "{name} as {ty}");
            assert_eq!(found.warnings, Vec::<String>::new(), "{name} as {ty}");
            let worst = found.worst_first()[0].deviation.unwrap();
            assert!(worst.relative_error() <= limit, "{name} as {ty}: {}", worst.relative_error());
            let matrices = gguf.tensors().iter().filter(|t| t.rows() > 1);
            assert_eq!(found.total().unwrap().count(), matrices.map(|t| t.elements() as u64).sum::<u64>());
            assert!(found.tensors.iter().all(|t| t.deviation.is_some()));
        }
    }
}

#[test]
fn deviations_are_those_of_plain_loops() {
    let (_dir, exact, _) = convert(&demo(), "f32");
    let (_dir2, gguf, _) = convert(&demo(), "q4_0");
    let found = check(&gguf, Some(&Source::open(&demo()).unwrap()));
    // A stack of experts: cut at the matrices of the file and of the checkpoint.
    let name = "blk.1.ffn_gate_up_exps.weight";
    let tensor = gguf.tensor(name).unwrap();
    let source = exact.data(exact.tensor(name).unwrap());
    let x: Vec<f32> = source.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let mut q = vec![0.0; x.len()];
    hf2q_quant::dequantize(tensor.ty, gguf.data(tensor), &mut q).unwrap();
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(&q).map(|(&x, &q)| f(x.into(), q.into())).sum::<f64>();
    let (xx, qq, xq) = (sum(&|x, _| x * x), sum(&|_, q| q * q), sum(&|x, q| x * q));
    let relative = (sum(&|x, q| (x - q) * (x - q)) / xx).sqrt();
    let largest =
        x.iter().zip(&q).map(|(x, q)| f64::from(*x) - f64::from(*q)).fold(0.0, |a: f64, d| a.max(d.abs()));
    let row = found.tensors.iter().find(|t| t.name == name).unwrap();
    let deviation = row.deviation.unwrap();
    assert!((deviation.relative_error() - relative).abs() < 1e-12 && relative > 0.01);
    assert!((deviation.cosine() - xq / (xx * qq).sqrt()).abs() < 1e-12);
    assert_eq!(deviation.max_error(), largest);
    assert_eq!((row.source.as_deref(), row.ty), (Some("bf16"), TensorType::Q4_0));
    // Sums do not depend on which thread did what.
    assert_eq!(check(&gguf, Some(&Source::open(&demo()).unwrap())).total(), found.total());
}

#[test]
fn the_worst_come_first_and_a_limit_makes_problems() {
    let (_dir, gguf, _) = convert(&demo(), "q4_0");
    let source = Source::open(&demo()).unwrap();
    let found = check(&gguf, Some(&source));
    let errors: Vec<f64> =
        found.worst_first().iter().map(|t| t.deviation.unwrap().relative_error()).collect();
    assert!(errors.is_sorted_by(|a, b| a >= b) && errors.len() == gguf.tensors().len());
    let strict = verify(&gguf, Some(&source), 0.02, &mut Silent::default()).unwrap();
    let far = errors.iter().filter(|&&e| e > 0.02).count();
    assert!(far > 0 && strict.problems.len() == far);
    assert!(strict.problems[0].to_string().contains("above 0.02"), "{}", strict.problems[0]);
}

#[test]
fn a_file_is_compared_with_a_file() {
    let (dir, _exact, _) = convert(&demo(), "bf16");
    let (_dir2, gguf, _) = convert(&demo(), "q8_0");
    let source = Source::open(&dir.path().join("out.gguf")).unwrap();
    assert_eq!(check(&gguf, Some(&source)).problems, []);
    let same = Gguf::open(&dir.path().join("out.gguf")).unwrap();
    assert_eq!(check(&same, Some(&source)).total().unwrap().relative_error(), 0.0);
}

#[test]
fn tensors_that_are_missing_extra_or_of_another_shape() {
    let (_dir, gguf, _) = convert(&demo(), "q8_0");
    let source = Source::open(&demo()).unwrap();
    let gone = rebuilt(&gguf, |b, name| (name == "blk.2.attn_q.weight").then_some(b));
    let tensor = "blk.2.attn_q.weight".to_owned();
    only_problem(&check(&gone, None), &Problem::Missing { tensor: tensor.clone() });
    let found = check(&gone, Some(&source));
    assert_eq!(found.problems[1..], [Problem::NotInFile { tensor }]);

    let extra = rebuilt(&gguf, |b, name| {
        let t = gguf.tensor(name).unwrap();
        (name == "output_norm.weight").then(|| {
            b.tensor(name, t.ty, &t.shape, gguf.data(t).to_vec())
                .f32("blk.0.attn_q.bias", &[2], &[0.0; 2])
                .f32("odd", &[1], &[1.0])
        })
    });
    let found = check(&extra, None);
    only_problem(&found, &Problem::Unsupported { tensor: "blk.0.attn_q.bias".to_owned() });
    assert!(found.warnings[0].contains("odd"), "{:?}", found.warnings);
    assert_eq!(check(&extra, Some(&source)).problems.len(), 3);

    let short =
        rebuilt(&gguf, |b, name| (name == "output_norm.weight").then(|| b.f32(name, &[64], &[1.0; 64])));
    let found = check(&short, Some(&source));
    let text: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    assert!(text.len() == 2 && text[0].contains("[64]") && text[1].contains("in the source"), "{text:?}");
}

#[test]
fn damaged_blocks_are_found_where_they_are() {
    let (_dir, gguf, _) = convert(&demo(), "q8_0");
    let name = "blk.3.ffn_down_exps.weight";
    let damaged = rebuilt(&gguf, |b, this| {
        (this == name).then(|| {
            let t = gguf.tensor(name).unwrap();
            let mut data = gguf.data(t).to_vec();
            let block = data.len() / 34 - 3;
            data[block * 34..block * 34 + 2].copy_from_slice(&0x7c00_u16.to_le_bytes());
            b.tensor(name, t.ty, &t.shape, data)
        })
    });
    let expected = gguf.data(gguf.tensor(name).unwrap()).len() / 34 - 3;
    for source in [None, Some(Source::open(&demo()).unwrap())] {
        let found = check(&damaged, source.as_ref());
        assert!(
            matches!(&found.problems[..], [Problem::Block { tensor, block, .. }] if tensor == name && *block == expected),
            "{:?}",
            found.problems
        );
    }
}

#[test]
fn values_of_another_tensor_are_far() {
    let (_dir, gguf, _) = convert(&demo(), "bf16");
    let (from, to) = (gguf.tensor("blk.0.attn_q.weight").unwrap(), "blk.1.attn_q.weight");
    let swapped = rebuilt(&gguf, |b, name| {
        (name == to).then(|| b.tensor(to, from.ty, &from.shape, gguf.data(from).to_vec()))
    });
    let found = check(&swapped, Some(&Source::open(&demo()).unwrap()));
    assert!(
        matches!(&found.problems[..], [Problem::Far { tensor, .. }] if tensor == to),
        "{:?}",
        found.problems
    );
}

#[test]
fn tokenizers_and_metadata() {
    let (_dir, gguf, _) = convert(&demo(), "q8_0");
    let edited = |edit: &dyn Fn(&mut hf2q_gguf::Metadata)| {
        let mut metadata = gguf.metadata().clone();
        edit(&mut metadata);
        let mut builder = GgufBuilder::new().metadata(&metadata);
        for t in gguf.tensors() {
            builder = builder.tensor(&t.name, t.ty, &t.shape, gguf.data(t).to_vec());
        }
        let source = Source::open(&demo()).unwrap();
        let found = check(&builder.open().unwrap(), Some(&source));
        let problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
        (problems, found.warnings)
    };
    let (problems, _) = edited(&|m| {
        m.remove("tokenizer.ggml.model");
    });
    assert!(problems.len() == 1 && problems[0].contains("there is none"), "{problems:?}");
    let (problems, _) = edited(&|m| {
        m.insert("tokenizer.ggml.tokens", vec!["a".to_owned()]);
    });
    assert!(problems.iter().any(|p| p.contains("1 tokens, but the embedding has 4096")), "{problems:?}");
    let (problems, warnings) = edited(&|m| {
        m.insert("gemma4.rope.freq_base", Value::F32(7.0));
    });
    assert_eq!(problems, Vec::<String>::new());
    assert!(warnings.len() == 1 && warnings[0].contains("gemma4.rope.freq_base"), "{warnings:?}");
    let (problems, _) = edited(&|m| {
        m.insert("general.architecture", "mamba");
    });
    assert!(problems.len() == 2 && problems[0].contains("mamba"), "{problems:?}");
}

#[test]
fn it_can_be_cancelled() {
    let (_dir, gguf, _) = convert(&demo(), "q8_0");
    let mut progress = Silent { stop_after: Some(1), ..Silent::default() };
    assert!(matches!(verify(&gguf, None, 0.5, &mut progress), Err(ConvertError::Cancelled)));
}
