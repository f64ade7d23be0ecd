//! What `hf2q profile` takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hf2q_observe::By;

use super::{EngineArgs, MOST, TimedArgs, number};

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) timed: TimedArgs,
    /// Tokens to decode
    #[arg(short = 'n', long, default_value_t = 32, value_parser = number(0..=MOST))]
    pub(crate) decode: usize,
    /// What the lines of the tables are; may be repeated
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["kind", "layer"])]
    pub(crate) by: Vec<ByArg>,
    /// Lines of a table, the most expensive first
    #[arg(long, default_value_t = 16, value_parser = number(1..=MOST))]
    pub(crate) top: usize,
    /// Print JSON, with every operation
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the stacks of all operations with their microseconds, for flame graph tools
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "folded")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ByArg {
    /// Each operation by itself, as `hf2q plan` names it
    Op,
    /// Operations of one kind and format
    Kind,
    /// Operations of one layer
    Layer,
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Op => Self::Op,
            ByArg::Kind => Self::Kind,
            ByArg::Layer => Self::Layer,
        }
    }
}
