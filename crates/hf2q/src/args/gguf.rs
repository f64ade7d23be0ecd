//! What `hf2q gguf` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct GgufArgs {
    #[command(subcommand)]
    pub(crate) action: GgufAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GgufAction {
    /// Print values of metadata keys, or list all keys
    Get(GetArgs),
    /// Set metadata keys; tensors stay as they are
    Set(SetArgs),
    /// Remove metadata keys; tensors stay as they are
    Unset(UnsetArgs),
    /// Print the chat template, or replace it
    Template(TemplateArgs),
}

const FILE_HELP: &str = "A GGUF file, or any shard of a split one";

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[arg(help = FILE_HELP)]
    pub(crate) file: PathBuf,
    /// Keys whose whole values are printed, one after the other [default: list all keys]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[arg(help = FILE_HELP)]
    pub(crate) file: PathBuf,
    /// KEY=VALUE keeps the type of the key; KEY:TYPE=VALUE gives it one: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool string, or
    /// array:TYPE with a JSON list
    #[arg(value_name = "KEY[:TYPE]=VALUE", required = true)]
    pub(crate) assignments: Vec<String>,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    #[arg(help = FILE_HELP)]
    pub(crate) file: PathBuf,
    #[arg(value_name = "KEY", required = true, help = "Keys to remove")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    #[arg(help = FILE_HELP)]
    pub(crate) file: PathBuf,
    /// A Jinja file with the new template; `-` reads standard input [default: print the present one]
    pub(crate) template: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
}

/// Where and how an edit is written.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// Write a new file instead of changing FILE. A split model is written whole
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Show what would change, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write changes that make the model unusable, as far as the file stays readable
    #[arg(long)]
    pub(crate) force: bool,
}
