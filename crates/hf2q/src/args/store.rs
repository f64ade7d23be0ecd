//! What `hf2q pull`, `hf2q list` and `hf2q rm` take.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// ORG/NAME, or ORG/NAME@REVISION with a branch, tag or commit
    pub(crate) repository: String,
    /// Convert it too, so that its first use does not have to
    #[arg(long)]
    pub(crate) convert: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// ORG/NAME: all its revisions go; or the name of a converted file, as `hf2q list` shows it
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}
