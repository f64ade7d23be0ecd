//! Repository checks: `cargo xtask tidy`, `cargo xtask kernels`.

mod kernels;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let result = match command.as_deref() {
        Some("tidy") => tidy::run(),
        Some("kernels") => kernels::run(std::env::args().skip(2)),
        _ => Err(anyhow::anyhow!("usage: cargo xtask tidy, or: cargo xtask kernels")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a developer's tool reports on the terminal")]
fn report(text: &str) {
    eprintln!("{text}");
}
