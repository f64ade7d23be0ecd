//! The command line of hf2q: arguments, configuration, commands. No logic of its own.

mod args;
mod commands;
mod config;
mod hub;
mod interrupt;
mod load;
mod session;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if terminal::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(&format!("hf2q: {error:#}"));
            if interrupt::pressed() { ExitCode::from(interrupt::INTERRUPTED) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    if cli.offline {
        config::go_offline();
    }
    match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Gguf(args) => commands::gguf::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Perplexity(args) => commands::perplexity::run(&args),
        Command::Imatrix(args) => commands::imatrix::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    }
}
