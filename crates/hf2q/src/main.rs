//! The command line of hf2q: arguments, configuration, commands. No logic of its own.

mod args;
mod commands;
mod config;
mod device;
mod drafts;
mod hints;
mod hub;
mod interrupt;
mod keyboard;
mod load;
mod memory;
mod output;
mod progress;
mod session;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// What shells report for a program that a closed pipe ended.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Quiet, but not a success: what was to be said did not arrive.
        Err(error) if terminal::is_closed_pipe(&error) => ExitCode::from(CLOSED_PIPE),
        Err(error) => {
            // Messages of several lines keep them.
            let lines: Vec<String> = message(&error).lines().map(terminal::safe).collect();
            terminal::note(&format!("hf2q: {}", lines.join("\n")));
            if interrupt::pressed() { ExitCode::from(interrupt::INTERRUPTED) } else { ExitCode::FAILURE }
        }
    }
}

/// What clap says of arguments, help included, and what may have been meant.
fn not_parsed(error: &clap::Error) -> ExitCode {
    // There is nobody to tell if that fails.
    let _ = error.print();
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(hint) = hints::hint(&args).filter(|_| error.use_stderr()) {
        terminal::note(&hint);
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// An error and what caused it, where it does not say so itself.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|c| !c.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    if cli.offline {
        config::go_offline();
    }
    match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Pull(args) => commands::store::pull(&args),
        Command::List(args) => commands::store::list(&args),
        Command::Rm(args) => commands::store::rm(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Gguf(args) => commands::gguf::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Fit(args) => commands::fit::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::BenchServe(args) => commands::bench_serve::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Perplexity(args) => commands::perplexity::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Needle(args) => commands::needle::run(&args),
        Command::Imatrix(args) => commands::imatrix::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    }
}
