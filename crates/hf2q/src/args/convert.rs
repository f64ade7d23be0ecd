//! What `hf2q convert` takes.

use std::path::PathBuf;

use clap::Args;
use hf2q_convert::Recipe;

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// A folder with config.json, safetensors and tokenizer files, a HuggingFace repository (ORG/NAME or ORG/NAME@REVISION), or a
    /// GGUF file
    pub(crate) input: PathBuf,
    /// The GGUF file to write [default: NAME-TYPE.gguf in the current folder]
    #[arg(short, long, alias = "outfile")]
    pub(crate) output: Option<PathBuf>,
    /// Which types the tensors get
    #[arg(short = 't', long = "type", alias = "outtype", value_name = "TYPE", default_value = "q8_0", ignore_case = true,
        value_parser = recipes())]
    pub(crate) ty: String,
    /// The model that a drafter is for, a folder or a GGUF file: the drafter's file gets its tokens, and is refused where it
    /// does not fit
    #[arg(long, value_name = "MODEL")]
    pub(crate) target: Option<PathBuf>,
    /// Give every matrix the base type of TYPE: no mixture
    #[arg(long)]
    pub(crate) pure: bool,
    /// Type of the output matrix (of the embedding where it takes its place)
    #[arg(long, value_name = "TYPE")]
    pub(crate) output_type: Option<String>,
    /// Type of the token embedding
    #[arg(long, value_name = "TYPE")]
    pub(crate) embedding_type: Option<String>,
    /// Type of all matrices in whose name the pattern (a regular expression) is found, e.g. 'attn_v=q8_0'; the first that
    /// matches decides
    #[arg(long, value_name = "PATTERN=TYPE")]
    pub(crate) tensor_type: Vec<String>,
    /// Importance of the weights' columns, made by `hf2q imatrix` or llama-imatrix; several files are added
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Vec<PathBuf>,
    /// Encode q4_0 the usual way also where the weights were trained for that format
    #[arg(long)]
    pub(crate) no_lattice: bool,
    /// Show what each tensor would become, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write a page that shows which types the tensors got, how large they are and how far their values moved
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write files of at most this size, e.g. 4G; a larger tensor has a file of its own
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) split: Option<u64>,
    /// Replace the output if it exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Refuse rows that fit no block of their type, instead of taking a larger type that they fit
    #[arg(long)]
    pub(crate) no_fallback: bool,
}

/// Names of recipes, their short forms too.
pub(super) fn recipes() -> clap::builder::PossibleValuesParser {
    let value = |recipe: Recipe| clap::builder::PossibleValue::new(recipe.name()).aliases(recipe.alias());
    Recipe::all().map(value).into()
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text
        .trim_end_matches(['B', 'b'])
        .split_at_checked(text.trim_end_matches(['B', 'b']).len().saturating_sub(1))
    {
        Some((d, "K" | "k")) => (d, 1_u64 << 10),
        Some((d, "M" | "m")) => (d, 1 << 20),
        Some((d, "G" | "g")) => (d, 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size such as 500M or 4G"))?;
    number.checked_mul(unit).filter(|&n| n > 0).ok_or_else(|| format!("{text:?} is out of range"))
}
