//! What `hf2q perplexity` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_model::RecordOptions;

use super::{EngineArgs, IsaArg, KV_HELP, MODEL_HELP, MOST, MOST_ROWS, MOST_THREADS, number};
use crate::device::{DEVICE_HELP, DeviceArg};

#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// The text file
    pub(crate) file: PathBuf,
    /// Tokens of a window. Each window starts anew, after the beginning-of-text token if the vocabulary has one. Without
    /// --stride the windows lie side by side, and all their tokens count (llama-perplexity counts the second half only)
    #[arg(long, value_name = "N", default_value_t = 511, value_parser = number(1..=MOST))]
    pub(crate) tokens: usize,
    /// Tokens from the start of a window to the start of the next one. With fewer than --tokens windows overlap; each token still
    /// counts once, in the first window that has it: all of the first window, then the last N tokens of each, which have at least
    /// TOKENS - N tokens before them. Time grows as TOKENS / N [default: as --tokens]
    #[arg(long, value_name = "N", value_parser = number(1..=MOST))]
    pub(crate) stride: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, default_value_t, help = DEVICE_HELP)]
    pub(crate) device: DeviceArg,
    /// Threads [default: one for each core]
    #[arg(short, long, value_parser = number(1..=MOST_THREADS))]
    pub(crate) threads: Option<usize>,
    /// Tokens computed in one step
    #[arg(long, default_value_t = 512, value_parser = number(1..=MOST_ROWS))]
    pub(crate) chunk: usize,
    #[arg(long, value_name = "FORMATS", default_value_t, help = KV_HELP)]
    pub(crate) kv: RecordOptions,
    /// Instruction set [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) isa: Option<IsaArg>,
}

impl PerplexityArgs {
    /// How the model is run: a window of so many tokens and the token before it are the context.
    pub(crate) fn engine(&self, window: usize) -> EngineArgs {
        EngineArgs {
            device: self.device,
            threads: self.threads,
            context: Some(window + 1),
            chunk: self.chunk,
            kv: self.kv,
            isa: self.isa,
            silent: false,
        }
    }
}
