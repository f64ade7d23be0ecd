//! What `hf2q bench` takes.

use std::path::PathBuf;

use clap::Args;

use super::{DraftArgs, EngineArgs, MOST, TimedArgs, number};

/// Sequences at once; each takes memory for a context.
const MOST_SEQUENCES: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) timed: TimedArgs,
    /// Tokens to decode
    #[arg(short = 'n', long, default_value_t = 128, value_parser = number(0..=MOST))]
    pub(crate) decode: usize,
    /// Repetitions
    #[arg(short, long, default_value_t = 5, value_parser = number(1..=MOST))]
    pub(crate) repetitions: usize,
    /// Decode so many sequences at once; tokens of all of them count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=MOST_SEQUENCES))]
    pub(crate) sequences: usize,
    /// Run this llama-bench in turn with hf2q, on the same file with the same threads, and print the ratios
    #[arg(long, value_name = "LLAMA_BENCH", conflicts_with_all = ["synthetic", "sequences", "skip"])]
    pub(crate) against: Option<PathBuf>,
    /// Leave out the operations with these names (see `hf2q plan`; `*` is any characters, `?` one), to see what they cost:
    /// the model's numbers are wrong then, the time is what counts; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) skip: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// With --draft: a file with a message. Its answer is timed in turn with and without drafts, instead of prompt and decoding
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthetic", "sequences", "skip", "against", "prompt", "depth"])]
    pub(crate) text: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) draws: DrawArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) drafts: DraftArgs,
}

/// How the answer to --text is drawn.
#[derive(Debug, Args)]
pub(crate) struct DrawArgs {
    /// With --text: 0 takes the most likely token [default: 0]; the higher, the less can be guessed
    #[arg(long, visible_alias = "temp", allow_negative_numbers = true, requires = "text")]
    pub(crate) temperature: Option<f32>,
    /// With --text: seed of the first answer's draws; each further answer takes the next [default: 0]
    #[arg(long, requires = "text")]
    pub(crate) seed: Option<u64>,
}
