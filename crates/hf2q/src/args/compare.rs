//! What `hf2q compare` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_model::RecordOptions;
use hf2q_plan::KvFormat;

use super::{IsaArg, KV_HELP, MODEL_HELP, MOST, MOST_ROWS, MOST_THREADS, number};
use crate::device::{DEVICE_HELP, DeviceArg};

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The model that others are measured by (a GGUF file, a folder or a repository, as for `hf2q run`)
    #[arg(value_name = "A")]
    pub(crate) model: PathBuf,
    /// The model that is measured, with the same vocabulary [default: A itself, with other caches, threads or instructions]
    #[arg(value_name = "B", long_help = MODEL_HELP)]
    pub(crate) other: Option<PathBuf>,
    /// The text file that both read
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    #[arg(long, value_name = "FORMATS", default_value_t = RecordOptions::uniform(KvFormat::F32), help = format!("{KV_HELP}; of A"))]
    pub(crate) a_kv: RecordOptions,
    /// The same for B; given several times, each is a candidate of its own, and all are measured in one run [default: as A]
    #[arg(long, value_name = "FORMATS")]
    pub(crate) b_kv: Vec<RecordOptions>,
    #[arg(long, value_name = "DEVICE", default_value_t, help = format!("{DEVICE_HELP}; of A"))]
    pub(crate) a_device: DeviceArg,
    /// The same for B [default: as A]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) b_device: Option<DeviceArg>,
    /// Threads of A [default: one for each core]
    #[arg(long, value_name = "N", value_parser = number(1..=MOST_THREADS))]
    pub(crate) a_threads: Option<usize>,
    /// Threads of B [default: one for each core]
    #[arg(long, value_name = "N", value_parser = number(1..=MOST_THREADS))]
    pub(crate) b_threads: Option<usize>,
    /// Instruction set of A [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) a_isa: Option<IsaArg>,
    /// Instruction set of B [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) b_isa: Option<IsaArg>,
    /// Tokens of a chunk of the text. Each chunk starts anew, with the beginning-of-text token in place of its first one if the
    /// model has one, and its second half is compared, as in llama-perplexity [default: 2048, or what the models have if less]
    #[arg(short, long, value_name = "N", value_parser = number(8..=MOST))]
    pub(crate) context: Option<usize>,
    /// Most chunks to read [default: all]
    #[arg(long, value_name = "N", value_parser = number(1..=MOST))]
    pub(crate) chunks: Option<usize>,
    /// Tokens computed in one step
    #[arg(long, default_value_t = 512, value_parser = number(1..=MOST_ROWS))]
    pub(crate) chunk: usize,
    /// Tokens of greedy runs, which continue the first half of a chunk; 0 for none [default: 32, or half of a chunk if less]
    #[arg(long, value_name = "N", value_parser = number(0..=MOST))]
    pub(crate) greedy: Option<usize>,
    /// Greedy runs, after chunks evenly spread over the text; at most one a chunk
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number(0..=MOST))]
    pub(crate) prompts: usize,
    /// Print JSON; what is not finite is null
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with tables and plots, which needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// What every candidate must keep.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (exit status 1 if a candidate does not keep one)")]
pub(crate) struct LimitArgs {
    /// Largest mean divergence, in nats
    #[arg(long, value_name = "X", value_parser = limit)]
    pub(crate) max_kl: Option<f64>,
    /// Largest divergence that 99 of 100 tokens do not exceed, in nats
    #[arg(long, value_name = "X", value_parser = limit)]
    pub(crate) max_kl_p99: Option<f64>,
    /// Least share of tokens with the same most likely token, 0 to 1
    #[arg(long, value_name = "X", value_parser = share)]
    pub(crate) min_top1: Option<f64>,
    /// Largest ratio of perplexities, B over A
    #[arg(long, value_name = "X", value_parser = limit)]
    pub(crate) max_ppl_ratio: Option<f64>,
    /// Least mean cosine of attention outputs, in every layer, 0 to 1
    #[arg(long, value_name = "X", value_parser = share)]
    pub(crate) min_cosine: Option<f64>,
}

fn limit(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number >= 0.0 { Ok(number) } else { Err(format!("{text} is not 0 or more")) }
}

/// A limit of what is 1 at best.
fn share(text: &str) -> Result<f64, String> {
    limit(text).and_then(|n| if n <= 1.0 { Ok(n) } else { Err(format!("{text} is not from 0 to 1")) })
}
