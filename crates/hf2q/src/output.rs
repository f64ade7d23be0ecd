//! Files that a command writes: what is wrong with them is said before the work, not after it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use hf2q_gguf::same_file;

/// Refuses a file that cannot be written, or that is there already and may not be replaced. `flag` is what names it.
pub(crate) fn check(flag: &str, file: &Path, force: bool) -> Result<()> {
    let folder = folder_of(file);
    if file.exists() && !file.is_file() {
        bail!("{flag} {} is no file that could be replaced", file.display());
    }
    if file.exists() && !force {
        bail!("{} exists already; --force replaces it", file.display());
    }
    if !folder.is_dir() {
        bail!("{flag} {}: there is no folder {}", file.display(), folder.display());
    }
    Ok(())
}

/// Refuses to replace what is read.
pub(crate) fn is_no_input<'a>(
    flag: &str,
    file: &Path,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<()> {
    if inputs.into_iter().any(|input| same_file(input, file)) {
        bail!("{flag} {} is an input; choose another name", file.display());
    }
    Ok(())
}

/// Where a file lies.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
