//! `hf2q pull`, `hf2q list`, `hf2q rm`: what lies in the caches.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use hf2q_hub::{Hub, Repository};
use serde_json::{Value, json};

use crate::args::{ListArgs, PullArgs, RmArgs};
use crate::{config, hub, load, terminal};

pub(crate) fn pull(args: &PullArgs) -> Result<()> {
    let repository: Repository = args.repository.parse()?;
    let snapshot = hub::fetch(&repository)?;
    if args.convert {
        load::any(&snapshot.folder)?;
    }
    terminal::print_line(&snapshot.folder.display().to_string())
}

/// A converted file of the cache.
struct Converted {
    name: String,
    path: PathBuf,
    bytes: u64,
}

pub(crate) fn list(args: &ListArgs) -> Result<()> {
    let stored = Hub::new(config::hub()?).stored()?;
    let converted = converted(&config::cache_dir()?)?;
    if args.json {
        let repositories: Vec<Value> = stored
            .iter()
            .map(|s| json!({ "repository": s.id, "revisions": s.revisions, "bytes": s.bytes, "complete": s.complete }))
            .collect();
        let files: Vec<Value> = converted
            .iter()
            .map(|c| json!({ "name": c.name, "path": c.path.display().to_string(), "bytes": c.bytes }))
            .collect();
        return terminal::print_json(&json!({ "repositories": repositories, "converted": files }));
    }
    if stored.is_empty() && converted.is_empty() {
        terminal::note("nothing is stored; `hf2q pull ORG/NAME` loads a repository");
        return Ok(());
    }
    let mut rows = vec![["NAME", "WHAT", "SIZE"].map(str::to_owned).to_vec()];
    for s in &stored {
        let what = if s.complete { s.revisions.join(", ") } else { "not complete".to_owned() };
        rows.push(vec![s.id.clone(), what, terminal::bytes(s.bytes)]);
    }
    for c in &converted {
        rows.push(vec![c.name.clone(), "converted".to_owned(), terminal::bytes(c.bytes)]);
    }
    terminal::print_table(&rows, 2)
}

pub(crate) fn rm(args: &RmArgs) -> Result<()> {
    for name in &args.names {
        let freed = remove(name)?;
        terminal::note(&format!("{name} is removed: {} are free", terminal::bytes(freed)));
    }
    Ok(())
}

fn remove(name: &str) -> Result<u64> {
    if let Some(file) = converted(&config::cache_dir()?)?.into_iter().find(|c| c.name == name) {
        std::fs::remove_file(&file.path).with_context(|| file.path.display().to_string())?;
        return Ok(file.bytes);
    }
    if !Repository::looks_like(name) {
        bail!("{name} is neither a repository ORG/NAME nor a converted file that `hf2q list` shows");
    }
    let repository: Repository = name.parse()?;
    Ok(Hub::new(config::hub()?).remove(&repository)?)
}

/// Converted files, the newest first.
fn converted(dir: &Path) -> Result<Vec<Converted>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| dir.display().to_string()),
    };
    let mut found: Vec<(SystemTime, Converted)> = Vec::new();
    for path in entries.flatten().map(|e| e.path()) {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if meta.is_file() && path.extension().is_some_and(|e| e == "gguf") {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let time = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((time, Converted { name, path, bytes: meta.len() }));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    Ok(found.into_iter().map(|(_, c)| c).collect())
}
