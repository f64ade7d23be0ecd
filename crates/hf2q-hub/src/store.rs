//! What the cache holds, and how it is given up.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{self, Cache};
use crate::error::HubError;
use crate::fetch::Hub;
use crate::repository::Repository;

/// A repository in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// `ORG/NAME`.
    pub id: String,
    /// Branches and tags whose commit is known, and commits without a name.
    pub revisions: Vec<String>,
    /// Bytes on the disk, parts of interrupted downloads among them.
    pub bytes: u64,
    /// Some revision has all that a conversion reads.
    pub complete: bool,
}

impl Hub {
    /// The repositories of models in the cache, by name.
    ///
    /// # Errors
    /// The cache cannot be read. That there is none is not an error.
    pub fn stored(&self) -> Result<Vec<Stored>, HubError> {
        let root = &self.config().cache;
        let mut found = Vec::new();
        for dir in entries(root)? {
            let name = dir.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("models--"));
            let id = name.map(|n| n.replacen("--", "/", 1));
            let Some(id) = id.filter(|id| Repository::looks_like(id) && dir.is_dir()) else { continue };
            found.push(describe(&dir, id)?);
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// Removes a repository with all its revisions from the cache; the bytes that were freed.
    ///
    /// # Errors
    /// It is not there, or cannot be removed.
    pub fn remove(&self, repository: &Repository) -> Result<u64, HubError> {
        let cache = Cache::new(&self.config().cache, repository);
        let dir = cache.dir();
        if !dir.is_dir() {
            let (repository, cache) = (repository.id().to_owned(), cache.root().to_owned());
            return Err(HubError::NotStored { repository, cache });
        }
        let bytes = size(&dir)?;
        fs::remove_dir_all(&dir).map_err(HubError::io(&dir))?;
        let locks = cache.locks();
        if locks.is_dir() {
            fs::remove_dir_all(&locks).map_err(HubError::io(&locks))?;
        }
        Ok(bytes)
    }
}

fn describe(dir: &Path, id: String) -> Result<Stored, HubError> {
    let mut revisions = Vec::new();
    let mut named = HashSet::new();
    for file in files(&dir.join("refs"))? {
        let name = file.strip_prefix(dir.join("refs")).unwrap_or(&file).to_string_lossy().into_owned();
        let commit = fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
        if dir.join("snapshots").join(&commit).is_dir() {
            named.insert(commit);
            revisions.push(name);
        }
    }
    let mut complete = false;
    for snapshot in entries(&dir.join("snapshots"))? {
        complete |= cache::missing(&snapshot).is_ok_and(|missing| missing.is_empty());
        let commit = snapshot.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !named.contains(&commit) {
            revisions.push(commit);
        }
    }
    revisions.sort();
    Ok(Stored { id, revisions, bytes: size(dir)?, complete })
}

/// What lies in a folder; nothing if there is none.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, HubError> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|e| e.map(|e| e.path()).map_err(HubError::io(dir))).collect(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(HubError::io(dir)(e)),
    }
}

/// All files below a folder, links not followed.
fn files(dir: &Path) -> Result<Vec<PathBuf>, HubError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for path in entries(&dir)? {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                open.push(path);
            } else if meta.is_file() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn size(dir: &Path) -> Result<u64, HubError> {
    let len = |path: &PathBuf| fs::symlink_metadata(path).map_or(0, |m| m.len());
    Ok(files(dir)?.iter().map(len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HubConfig;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn what_was_stored_is_listed_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let hub = Hub::new(HubConfig::new(root.path().join("hub")));
        assert_eq!(hub.stored().unwrap(), []);
        let repository: Repository = "org/a_b".parse().unwrap();
        let cache = Cache::new(&hub.config().cache, &repository);
        cache.prepare().unwrap();
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            fs::write(cache.blob(name), "12345").unwrap();
            cache.link(COMMIT, name, name).unwrap();
        }
        cache.note_commit(&repository, COMMIT).unwrap();
        fs::create_dir_all(hub.config().cache.join("datasets--x--y")).unwrap();
        let stored = hub.stored().unwrap();
        assert_eq!(stored.len(), 1);
        assert_eq!((stored[0].id.as_str(), stored[0].complete), ("org/a_b", true));
        assert_eq!(stored[0].revisions, ["main"]);
        assert_eq!(stored[0].bytes, 15 + 40);
        assert!(hub.remove(&repository).unwrap() >= 15);
        assert_eq!(hub.stored().unwrap(), []);
        assert!(hub.remove(&repository).unwrap_err().to_string().contains("org/a_b"));
    }

    #[test]
    fn a_part_is_no_whole() {
        let root = tempfile::tempdir().unwrap();
        let hub = Hub::new(HubConfig::new(root.path().to_owned()));
        let cache = Cache::new(root.path(), &"a/b".parse().unwrap());
        cache.prepare().unwrap();
        fs::write(cache.part("x"), "12").unwrap();
        let stored = hub.stored().unwrap();
        assert_eq!((stored[0].complete, stored[0].bytes, stored[0].revisions.len()), (false, 2, 0));
    }
}
