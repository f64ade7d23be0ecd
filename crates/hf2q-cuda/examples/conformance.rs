//! The conformance suite on a GPU:
//! `conformance [--device N] [--prebuilt DIR] [--cache DIR] [--nvrtc FILE] suite|timings [OPERATION …]`.

use std::process::ExitCode;

use hf2q_conformance::{Outcome, suite_of};
use hf2q_cuda::{CudaBackend, CudaOptions};
use hf2q_plan::Backend;

#[expect(clippy::print_stdout, reason = "a tool reports on the terminal")]
fn say(text: &str) {
    println!("{text}");
}

fn main() -> ExitCode {
    let mut options = CudaOptions::default();
    let mut words = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--device" => options.device = value().parse().unwrap_or(0),
            "--prebuilt" => options.prebuilt = Some(value().into()),
            "--cache" => options.kernel_cache = Some(value().into()),
            "--nvrtc" => options.nvrtc = Some(value().into()),
            _ => words.push(argument),
        }
    }
    let devices = CudaBackend::devices();
    if let Some(why) = devices.why_none {
        say(&format!("not run, no device: {why}"));
        return ExitCode::SUCCESS;
    }
    match CudaBackend::new(options) {
        Ok(backend) => suite(&backend, &words),
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn suite(backend: &dyn Backend, operations: &[String]) -> ExitCode {
    let wanted = |op: &str| operations.is_empty() || operations.iter().any(|o| o == op);
    let report = suite_of(backend, wanted);
    say(&report.backend);
    let (mut passed, mut wrong) = (0, 0);
    for case in &report.cases {
        match &case.outcome {
            Outcome::Passed { .. } => passed += 1,
            Outcome::Unsupported { why } | Outcome::Failed { why } => {
                wrong += 1;
                say(&format!("{}: {}: {why}", case.op, case.case));
            }
        }
    }
    say(&format!("{passed} passed, {wrong} failed or not supported"));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
