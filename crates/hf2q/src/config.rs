//! What the environment says. Nothing else in the project reads it.

use std::path::PathBuf;

use anyhow::{Context, Result};

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Where converted models are kept: `$XDG_CACHE_HOME/hf2q`, else `~/.cache/hf2q`.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder; run `hf2q convert` and give its output")?;
    Ok(base.join("hf2q"))
}

/// Where the chat's history is kept.
pub(crate) fn history_file() -> Option<PathBuf> {
    cache_dir().ok().map(|d| d.join("chat-history"))
}

/// Threads if nothing else is said: one for each core.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
