//! The CPU backend, in every instruction set of this machine and with several numbers of threads.

use hf2q_arch::Architecture;
use hf2q_conformance::invariance::{self, Options};
use hf2q_conformance::{Subject, agreement, suite};
use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat};

use crate::goldens::check_tiny;

fn cpu(threads: usize, isa: Option<Isa>) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa }).unwrap()
}

/// Every instruction set, each with another number of threads.
fn variants() -> Vec<CpuBackend> {
    Isa::available().into_iter().zip(2..).map(|(isa, threads)| cpu(threads, Some(isa))).collect()
}

#[test]
fn operations_agree_with_the_reference() {
    let report = suite(&cpu(3, None));
    assert!(report.passed(), "{report}");
}

#[test]
fn instruction_sets_and_threads_give_the_same_bits() {
    let all: Vec<CpuBackend> = std::iter::once(cpu(1, None)).chain(variants()).collect();
    let all: Vec<&dyn Backend> = all.iter().map(|b| b as &dyn Backend).collect();
    let report = agreement(&all, |_| true);
    assert!(report.passed() && report.cases.len() > 500, "{report}");
}

#[test]
fn rows_depend_on_their_history_alone() {
    let first = cpu(1, None);
    let others: Vec<CpuBackend> = variants().into_iter().chain([cpu(4, None)]).collect();
    let others: Vec<&dyn Backend> = others.iter().map(|b| b as &dyn Backend).collect();
    for (seed, (name, model)) in (0..).zip(toy::all(2)) {
        let format = if seed % 3 == 0 { KvFormat::F32 } else { KvFormat::F16 };
        let subject = Subject::of_model(&model, &RecordOptions::uniform(format)).unwrap();
        let options = Options { seed, turns: 12, ..Options::default() };
        let found = invariance::check(&first, &others, &subject, options).unwrap();
        assert_eq!(found.violations, [""; 0], "{name}");
        assert!(found.rows > 100 && found.drafted > 0, "{name}: {found:?}");
    }
}

/// Toys whose heads have at least 64 values, so that every cache format takes them.
pub(crate) fn wide_toys() -> Vec<(&'static str, Model)> {
    let mut configs = toy::configs();
    configs.retain(|(_, c)| c.rope_factors.is_none() || c.architecture == Architecture::Gemma4);
    for (_, config) in &mut configs {
        for layer in config.layers.iter_mut().filter(|l| l.head_dim < 64) {
            (layer.head_dim, layer.rope.dims) = (128, 128);
        }
    }
    configs.into_iter().map(|(name, config)| (name, toy::build(config, 3))).collect()
}

#[test]
fn rows_depend_on_their_history_alone_in_every_cache_format() {
    let first = cpu(1, None);
    let others: Vec<CpuBackend> = variants().into_iter().chain([cpu(4, None)]).collect();
    let others: Vec<&dyn Backend> = others.iter().map(|b| b as &dyn Backend).collect();
    let toys = wide_toys();
    for (i, &k) in KvFormat::ALL.iter().enumerate() {
        // Every format for keys and for values, of both kinds of layers.
        let v = KvFormat::ALL[(i * 7 + 3) % KvFormat::ALL.len()];
        // Recent positions in half precision, in every other format, or nowhere else.
        let recent = [Some(KvFormat::F16), KvFormat::ALL.get(i + 1).copied()][i % 2];
        let (name, model) = &toys[i % toys.len()];
        let formats = RecordOptions { sliding: (k, v), global: (v, k), recent, all_rows: false };
        let subject = Subject::of_model(model, &formats).unwrap();
        let options = Options { seed: i as u64, turns: 12, ..Options::default() };
        let found = invariance::check(&first, &others, &subject, options).unwrap();
        assert_eq!(found.violations, [""; 0], "{name}, {} and {}", k.name(), v.name());
        assert!(found.rows > 100 && found.drafted > 0, "{name}: {found:?}");
    }
}

#[test]
fn tiny_checkpoints_give_what_transformers_computes() {
    check_tiny(&cpu(2, None));
}
