//! What `hf2q verify` takes.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A GGUF file, or any shard of a split one
    pub(crate) file: PathBuf,
    /// What it was made from: a HuggingFace folder or a GGUF file; every tensor is compared
    #[arg(long, value_name = "SOURCE")]
    pub(crate) against: Option<PathBuf>,
    /// The largest relative error of a tensor, |x - q| / |x|, that is not called wrong. The default finds other tensors, not poor
    /// quantization
    #[arg(long, value_name = "X", default_value_t = 0.5, requires = "against", value_parser = parse_error)]
    pub(crate) max_error: f64,
    /// List every tensor, not only the worst ten
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_error(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number >= 0.0 { Ok(number) } else { Err(format!("{text} is not 0 or more")) }
}
