//! What `hf2q fit` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_model::RecordOptions;

use super::convert::{parse_size, recipes};
use super::{DraftArg, KV_HELP, MOST, MOST_ROWS, MOST_THREADS, number};
use crate::device::{DEVICE_HELP, DeviceArg};

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    #[arg(
        help = "A GGUF file, any shard of a split one, a folder with one, a checkpoint folder (nothing is converted), or a repository ORG/NAME[@REVISION] (loaded into the cache first)"
    )]
    pub(crate) model: PathBuf,
    /// Tokens the context shall hold [default: the model's own, at most 8192]
    #[arg(short, long, value_parser = number(1..=MOST))]
    pub(crate) context: Option<usize>,
    /// Conversations at the same time
    #[arg(short, long, default_value_t = 1, value_parser = number(1..=MOST_ROWS))]
    pub(crate) sequences: usize,
    /// Memory that may be used, e.g. 16G [default: what the machine or the container has free]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    #[arg(long, value_name = "FORMATS", help = format!("{KV_HELP}; may be repeated, the best first [default: several]"))]
    pub(crate) kv: Vec<RecordOptions>,
    /// The type of weights into which the model would be converted [default: q8_0 for a checkpoint folder, else its own]
    #[arg(long = "type", value_name = "TYPE", ignore_case = true, value_parser = recipes())]
    pub(crate) ty: Option<String>,
    /// Count what guesses tokens as well, as with `run --draft`
    #[arg(long, value_name = "ngram|none|MODEL", default_value = "none")]
    pub(crate) draft: DraftArg,
    /// Prompt tokens computed in one step
    #[arg(long, default_value_t = 512, value_parser = number(1..=MOST_ROWS))]
    pub(crate) chunk: usize,
    #[arg(long, default_value_t, help = DEVICE_HELP)]
    pub(crate) device: DeviceArg,
    /// Threads [default: one for each core]
    #[arg(short, long, value_parser = number(1..=MOST_THREADS))]
    pub(crate) threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
