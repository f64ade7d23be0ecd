//! What `hf2q needle` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_model::RecordOptions;

use super::{EngineArgs, IsaArg, KV_HELP, MODEL_HELP, MOST, MOST_ROWS, MOST_THREADS, number};
use crate::device::{DEVICE_HELP, DeviceArg};

#[derive(Debug, Args)]
pub(crate) struct NeedleArgs {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: PathBuf,
    /// Tokens of the texts, question and answer included; several, separated by commas
    /// [default: 512, 1024, 2048 and 4096, as far as the model's context goes]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = number(1..=MOST))]
    pub(crate) lengths: Vec<usize>,
    /// Where the facts are planted: 0 is the beginning of the text, 1 its end
    #[arg(long, value_name = "X,...", value_delimiter = ',', default_values_t = [0.0, 0.25, 0.5, 0.75, 1.0], value_parser = depth)]
    pub(crate) depths: Vec<f64>,
    /// Texts of each length, made with the seeds 0, 1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(1..=MOST))]
    pub(crate) seeds: usize,
    /// Take the lines between the facts from this file [default: sentences from a list of words]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, value_name = "FORMATS", default_value = "f16", help = format!("{KV_HELP}; given several times, they are measured side by side"))]
    pub(crate) kv: Vec<RecordOptions>,
    #[arg(long, default_value_t, help = DEVICE_HELP)]
    pub(crate) device: DeviceArg,
    /// Threads [default: one for each core]
    #[arg(short, long, value_parser = number(1..=MOST_THREADS))]
    pub(crate) threads: Option<usize>,
    /// Tokens computed in one step
    #[arg(long, default_value_t = 512, value_parser = number(1..=MOST_ROWS))]
    pub(crate) chunk: usize,
    /// Instruction set [default: the best there is]
    #[arg(long, value_enum)]
    pub(crate) isa: Option<IsaArg>,
}

impl NeedleArgs {
    /// How the model is run, but for the caches.
    pub(crate) fn engine(&self, context: usize) -> EngineArgs {
        EngineArgs {
            device: self.device,
            threads: self.threads,
            context: Some(context),
            chunk: self.chunk,
            kv: RecordOptions::default(),
            isa: self.isa,
            silent: false,
        }
    }
}

fn depth(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=1.0).contains(&number) { Ok(number.abs()) } else { Err(format!("{text} is not from 0 to 1")) }
}
