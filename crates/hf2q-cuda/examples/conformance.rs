//! Everything that every backend must hold, on a GPU:
//! `conformance [--device N] [--prebuilt DIR] [--cache DIR] [--nvrtc FILE] [--checkpoints DIR] [--every N]
//! suite|invariance|goldens [OPERATION …]`. A checker of memory takes long: `--every` runs one of so many cases of the suite.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hf2q_conformance::goldens::{Golden, Runner};
use hf2q_conformance::invariance::{self, Options};
use hf2q_conformance::{Outcome, Subject, suite_of};
use hf2q_convert::{Options as ConvertOptions, Progress, Recipe, convert};
use hf2q_cuda::{CudaBackend, CudaOptions};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat};

type Outcomes = Vec<String>;

#[expect(clippy::print_stdout, reason = "a tool reports on the terminal")]
fn say(text: &str) {
    println!("{text}");
}

fn main() -> ExitCode {
    let (mut options, mut checkpoints) = (CudaOptions::default(), PathBuf::from("fixtures/tiny"));
    let (mut words, mut every) = (Vec::new(), 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--device" => options.device = value().parse().unwrap_or(0),
            "--prebuilt" => options.prebuilt = Some(value().into()),
            "--cache" => options.kernel_cache = Some(value().into()),
            "--nvrtc" => options.nvrtc = Some(value().into()),
            "--every" => every = value().parse().unwrap_or(1),
            "--checkpoints" => checkpoints = value().into(),
            _ => words.push(argument),
        }
    }
    if let Some(why) = CudaBackend::devices().why_none {
        say(&format!("not run, no device: {why}"));
        return ExitCode::SUCCESS;
    }
    let backend = match CudaBackend::new(options) {
        Ok(backend) => backend,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    say(&backend.describe());
    let problems = match words.split_first() {
        Some((what, rest)) if what == "suite" => suite(&backend, rest, every),
        Some((what, _)) if what == "invariance" => invariance_of(&backend),
        Some((what, _)) if what == "goldens" => goldens(&backend, &checkpoints),
        _ => vec!["say suite, invariance or goldens".to_owned()],
    };
    problems.iter().for_each(|p| say(p));
    say(&format!("{} problems", problems.len()));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cases of the operations that are named, or all; of these the first and one of `every` behind it.
fn suite(backend: &dyn Backend, operations: &[String], every: usize) -> Outcomes {
    let seen = Cell::new(0);
    let wanted = |op: &str| {
        let named = operations.is_empty() || operations.iter().any(|o| o == op);
        seen.set(seen.get() + usize::from(named));
        named && (seen.get() - 1).is_multiple_of(every.max(1))
    };
    let report = suite_of(backend, wanted);
    say(&format!("{} cases", report.cases.len()));
    let wrong = report.cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Passed { .. } => None,
        Outcome::Unsupported { why } | Outcome::Failed { why } => {
            Some(format!("{}: {}: {why}", case.op, case.case))
        }
    });
    wrong.collect()
}

/// Toy models of every architecture, in every cache format that their heads take.
fn invariance_of(backend: &dyn Backend) -> Outcomes {
    let mut problems = Vec::new();
    let (mut rows, mut drafted) = (0, 0);
    for (seed, (name, model)) in (0..).zip(toy::all(2)) {
        for format in KvFormat::ALL {
            let Ok(subject) = Subject::of_model(&model, &RecordOptions::uniform(format)) else { continue };
            let options = Options { seed, turns: 12, ..Options::default() };
            match invariance::check(backend, &[backend], &subject, options) {
                Ok(found) => {
                    (rows, drafted) = (rows + found.rows, drafted + found.drafted);
                    let place = |v: &String| format!("{name}, {}: {v}", format.name());
                    problems.extend(found.violations.iter().map(place));
                }
                Err(error) => problems.push(format!("{name}, {}: {error}", format.name())),
            }
        }
    }
    say(&format!("{rows} rows, {drafted} of them drafted"));
    problems
}

struct Silent;

impl Progress for Silent {
    fn start(&mut self, _: u64) {}

    fn advance(&mut self, _: &str, _: u64) -> bool {
        true
    }
}

/// Checkpoints, converted, against what the transformers library computed from them.
fn goldens(backend: &dyn Backend, folder: &Path) -> Outcomes {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.join("goldens.json").exists()).collect();
    folders.sort();
    say(&format!("{} checkpoints", folders.len()));
    let mut problems = Vec::new();
    for folder in folders {
        let found = golden(backend, &folder).unwrap_or_else(|error| vec![error]);
        problems.extend(found.into_iter().map(|p| format!("{}: {p}", folder.display())));
    }
    problems
}

fn golden(backend: &dyn Backend, folder: &Path) -> Result<Outcomes, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let golden = Golden::load(&folder.join("goldens.json")).map_err(|e| text(&e))?;
    let dir = tempfile::tempdir().map_err(|e| text(&e))?;
    let path = dir.path().join("model.gguf");
    let recipe = Recipe::from_name("f32").map_err(|e| text(&e))?;
    convert(folder, &path, ConvertOptions::new(recipe), &mut Silent).map_err(|e| text(&e))?;
    let model =
        Gguf::open(&path).map_err(|e| text(&e)).and_then(|g| Model::load(&g).map_err(|e| text(&e)))?;
    let options = RecordOptions { all_rows: true, ..RecordOptions::uniform(KvFormat::F32) };
    let subject = Subject::of_model(&model, &options).map_err(|e| text(&e))?;
    let mut runner = Runner::open(backend, subject, (1024, 128)).map_err(|e| text(&e))?;
    let found = runner.compare(&golden, None, 1).map_err(|e| text(&e))?;
    let mut problems: Outcomes = found.misses(1e-4, 5e-4).into_iter().map(|m| m.to_string()).collect();
    let off = found.prompts.iter().flat_map(|p| p.hidden.iter().copied()).fold(0.0, f64::max);
    if !off.is_finite() || off > 1e-4 {
        problems.push(format!("hidden states are off by {off:e}"));
    }
    Ok(problems)
}
