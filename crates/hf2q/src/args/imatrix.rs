//! What `hf2q imatrix` takes. Names and defaults follow `llama-imatrix` where both have a flag.

use std::path::PathBuf;

use clap::Args;

use hf2q_model::RecordOptions;

use super::{EngineArgs, IsaArg, KV_HELP, MODEL_HELP, MOST, MOST_THREADS, number};
use crate::device::{DEVICE_HELP, DeviceArg};

/// Tokens computed in one step.
const ROWS: usize = 512;

#[derive(Debug, Args)]
pub(crate) struct ImatrixArgs {
    #[arg(help = MODEL_HELP, required_unless_present = "merge")]
    pub(crate) model: Option<PathBuf>,
    /// Text files, read one after another
    #[arg(required_unless_present = "merge")]
    pub(crate) texts: Vec<PathBuf>,
    /// The importance file to write
    #[arg(short, long, default_value = "imatrix.gguf")]
    pub(crate) output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Tokens of a chunk; each chunk starts anew
    #[arg(short, long, visible_alias = "ctx-size", default_value_t = 512, value_parser = number(1..=MOST))]
    pub(crate) context: usize,
    /// Chunks to read [default: all]
    #[arg(long, value_parser = number(1..=MOST))]
    pub(crate) chunks: Option<usize>,
    /// Chunks of the text to skip
    #[arg(long, visible_alias = "chunk", default_value_t = 0, value_parser = number(0..=MOST))]
    pub(crate) from_chunk: usize,
    /// Measure the output matrix too
    #[arg(long)]
    pub(crate) process_output: bool,
    /// Let the spellings of control tokens in the text have their meaning
    #[arg(long)]
    pub(crate) parse_special: bool,
    /// Do not compute perplexity
    #[arg(long)]
    pub(crate) no_ppl: bool,
    /// Add to what this file holds; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) in_file: Vec<PathBuf>,
    /// Add these importance files up, without a model
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["model", "texts", "in_file"])]
    pub(crate) merge: Vec<PathBuf>,
    #[arg(long, default_value_t, help = DEVICE_HELP)]
    pub(crate) device: DeviceArg,
    /// Threads [default: one for each core]
    #[arg(short, long, value_parser = number(1..=MOST_THREADS))]
    pub(crate) threads: Option<usize>,
    #[arg(long, value_name = "FORMATS", default_value_t, help = KV_HELP)]
    pub(crate) kv: RecordOptions,
    /// Instruction set [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) isa: Option<IsaArg>,
}

impl ImatrixArgs {
    /// How the model is run.
    pub(crate) fn engine(&self) -> EngineArgs {
        EngineArgs {
            device: self.device,
            threads: self.threads,
            context: Some(self.context),
            chunk: ROWS,
            kv: self.kv,
            isa: self.isa,
            silent: false,
        }
    }
}
