//! What `hf2q trace` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_observe::Steps;

use super::{EngineArgs, MODEL_HELP};

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// The text to read
    #[arg(short, long, value_name = "TEXT", required_unless_present = "file")]
    pub(crate) prompt: Option<String>,
    /// A file with the text to read
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) file: Option<PathBuf>,
    /// Let the spellings of control tokens in the text have their meaning
    #[arg(long)]
    pub(crate) special: bool,
    /// Which tensors: names of operations as `hf2q plan` prints them, `*` for any characters and `?` for one, e.g.
    /// 'L0*.attn.*'. An operation that fills a cache has two, NAME.k and NAME.v: keys and values as they are stored
    #[arg(short, long, value_name = "GLOB", required = true, num_args = 1..)]
    pub(crate) select: Vec<String>,
    /// Which steps, e.g. 0,2..4 (both ends included): the text is read in steps of --chunk tokens from step 0 on; steps
    /// behind it are one token each, the most likely one [default: those of the text]
    #[arg(long)]
    pub(crate) steps: Option<Steps>,
    /// The safetensors file to write: a tensor NAME@STEP for each, with positions in its metadata
    #[arg(short, long, value_name = "FILE", required_unless_present = "stats")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Show what the values are like; for keys and values also rotated as TurboQuant does, with the share beyond the
    /// outermost level of each format
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print the statistics as JSON
    #[arg(long, requires = "stats")]
    pub(crate) json: bool,
    /// Trace the operations as the model records them
    #[arg(long)]
    pub(crate) no_fusion: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
