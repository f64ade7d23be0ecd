//! From the name of a repository to a local folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hf2q_hub::{Hub, Progress, Repository, Snapshot, Status};
use indicatif::ProgressBar;

use crate::{config, interrupt, terminal};

/// A local path as it is; where there is none and it reads like `ORG/NAME`, the folder of that repository.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    let named = path.to_str().filter(|text| !path.exists() && Repository::looks_like(text));
    let Some(named) = named else { return Ok(path.to_owned()) };
    let snapshot = fetch(&named.parse()?)
        .with_context(|| format!("{named} is no local file or folder, and as a repository"))?;
    Ok(snapshot.folder)
}

/// Loads a repository into the cache, with a progress bar; what is there is not loaded again.
pub(crate) fn fetch(repository: &Repository) -> Result<Snapshot> {
    interrupt::install_once()?;
    let mut shown = Shown { repository: repository.to_string(), bar: None };
    let result = Hub::new(config::hub()?).fetch(repository, &mut shown);
    if let Some(bar) = shown.bar {
        bar.finish_and_clear();
    }
    let snapshot = result?;
    if snapshot.loaded > 0 {
        terminal::note(&format!("{repository} is in {}", snapshot.folder.display()));
    }
    Ok(snapshot)
}

struct Shown {
    repository: String,
    bar: Option<ProgressBar>,
}

impl Progress for Shown {
    fn update(&mut self, status: &Status<'_>) -> bool {
        if status.total > 0 {
            let bar = self.bar.get_or_insert_with(|| {
                let size = terminal::bytes(status.total);
                terminal::note(&format!("Loading {}, {size}", self.repository));
                terminal::download_bar(status.total)
            });
            bar.set_length(status.total);
            bar.set_position(status.done);
            bar.set_message(message(status));
        }
        !interrupt::pressed()
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| terminal::note(text)),
            None => terminal::note(text),
        }
    }
}

fn message(status: &Status<'_>) -> String {
    let speed = terminal::bytes(status.speed as u64);
    let left = status.left.map(|time| format!("  {} left", clock(time))).unwrap_or_default();
    format!("{speed}/s{left}  {}", status.file)
}

/// Minutes and seconds, hours where there are some.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_a_clock() {
        assert_eq!(clock(Duration::from_secs(62)), "1:02");
        assert_eq!(clock(Duration::from_secs(3600 + 59)), "1:00:59");
    }

    #[test]
    fn what_is_no_name_of_a_repository_stays_a_path() {
        for path in ["/no/such/folder", "model.gguf", "sub/model.gguf", "./org/name", "a/b/c"] {
            assert_eq!(resolve(Path::new(path)).unwrap(), Path::new(path));
        }
    }
}
