//! Where things lie in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::content::PART;
use crate::error::HubError;
use crate::index;
use crate::repository::{Repository, is_commit};

/// Files that most checkpoints have; a conversion reads them, and can do without.
const USUAL: [&str; 3] = ["tokenizer_config.json", "chat_template.jinja", "generation_config.json"];

/// The folder of one repository.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// `models--ORG--NAME`.
    name: String,
}

impl Cache {
    pub(crate) fn new(root: &Path, repository: &Repository) -> Self {
        Self { root: root.to_owned(), name: format!("models--{}", repository.id().replace('/', "--")) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folders that contents and locks go to.
    pub(crate) fn prepare(&self) -> Result<(), HubError> {
        for dir in [self.dir().join("blobs"), self.locks()] {
            fs::create_dir_all(&dir).map_err(HubError::io(dir))?;
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join(".locks").join(&self.name)
    }

    /// A whole content. `id` is checked by [`Content`](crate::content::Content).
    pub(crate) fn blob(&self, id: &str) -> PathBuf {
        self.dir().join("blobs").join(id)
    }

    pub(crate) fn part(&self, id: &str) -> PathBuf {
        self.dir().join("blobs").join(format!("{id}{PART}"))
    }

    pub(crate) fn lock(&self, id: &str) -> PathBuf {
        self.locks().join(format!("{id}.lock"))
    }

    /// The folder of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir().join("snapshots").join(commit)
    }

    /// The commit at which a revision was last seen.
    pub(crate) fn commit_of(&self, repository: &Repository) -> Option<String> {
        if let Some(commit) = repository.commit() {
            return Some(commit.to_owned());
        }
        let text = fs::read_to_string(self.dir().join("refs").join(repository.revision())).ok()?;
        let commit = text.trim();
        is_commit(commit).then(|| commit.to_owned())
    }

    /// Notes the commit at which a revision stands. Readers see the old or the new one, never a part.
    pub(crate) fn note_commit(&self, repository: &Repository, commit: &str) -> Result<(), HubError> {
        if repository.commit().is_some() || self.commit_of(repository).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.dir().join("refs").join(repository.revision());
        let dir = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(dir).map_err(HubError::io(dir))?;
        // Threads of one process write names of their own, too.
        static WRITES: AtomicUsize = AtomicUsize::new(0);
        let new = path.with_file_name(format!(
            "{}.{}-{}.tmp",
            path.file_name().unwrap_or_default().to_string_lossy(),
            std::process::id(),
            WRITES.fetch_add(1, Ordering::Relaxed)
        ));
        let written = fs::write(&new, commit).map_err(HubError::io(&new));
        let placed = written.and_then(|()| fs::rename(&new, &path).map_err(HubError::io(&path)));
        if placed.is_err() {
            // The first failure is what matters.
            let _ = fs::remove_file(&new);
        }
        placed
    }

    /// An empty file here says that the commit has no file of that name; Python does the same.
    fn nothing(&self, commit: &str, name: &str) -> PathBuf {
        self.dir().join(".no_exist").join(commit).join(name)
    }

    /// Notes which usual files a commit does not have, for [`Cache::unsure`].
    pub(crate) fn note_absent(&self, commit: &str, listed: impl Fn(&str) -> bool) {
        for name in USUAL.into_iter().filter(|name| !listed(name)) {
            let path = self.nothing(commit, name);
            if !path.exists() {
                // Only a note depends on it, so a cache that cannot be written to is good enough.
                let _ = path.parent().map(fs::create_dir_all);
                let _ = fs::write(&path, "");
            }
        }
    }

    /// Usual files that a snapshot lacks, though the commit may have them.
    pub(crate) fn unsure(&self, commit: &str) -> Vec<&'static str> {
        let known =
            |name: &str| self.snapshot(commit).join(name).is_file() || self.nothing(commit, name).exists();
        USUAL.into_iter().filter(|name| !known(name)).collect()
    }

    /// Makes `name` of a commit stand for a content.
    pub(crate) fn link(&self, commit: &str, name: &str, id: &str) -> Result<(), HubError> {
        let dir = self.snapshot(commit);
        fs::create_dir_all(&dir).map_err(HubError::io(&dir))?;
        let (link, blob) = (dir.join(name), self.blob(id));
        for _ in 0..2 {
            match symlink(id, &blob, &link) {
                Ok(()) => return Ok(()),
                // Another process was faster, or a link from before leads elsewhere.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    if same_file(&link, &blob) {
                        return Ok(());
                    }
                    fs::remove_file(&link).map_err(HubError::io(&link))?;
                }
                Err(e) => return Err(HubError::io(link)(e)),
            }
        }
        if same_file(&link, &blob) {
            Ok(())
        } else {
            Err(HubError::io(link)(std::io::ErrorKind::AlreadyExists.into()))
        }
    }
}

/// Relative, so that the cache can be moved.
#[cfg(unix)]
fn symlink(id: &str, _blob: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(Path::new("../../blobs").join(id), link)
}

/// Elsewhere symbolic links need privileges; a hard link takes no room either.
#[cfg(not(unix))]
fn symlink(_id: &str, blob: &Path, link: &Path) -> std::io::Result<()> {
    fs::hard_link(blob, link).or_else(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Err(e),
        _ => fs::copy(blob, link).map(drop),
    })
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Size of a file; `None` if there is none, or a link leads nowhere.
pub(crate) fn size_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| m.len())
}

/// What a snapshot lacks to be a checkpoint that can be converted: names of files.
pub(crate) fn missing(folder: &Path) -> Result<Vec<String>, HubError> {
    let has = |name: &str| folder.join(name).is_file();
    let needed = ["config.json", "tokenizer.json"];
    let mut missing: Vec<String> = needed.iter().filter(|n| !has(n)).map(|n| (*n).to_owned()).collect();
    if !has(index::SINGLE) {
        if has(index::INDEX) {
            let shards = index::shards(&folder.join(index::INDEX), "the cache")?;
            missing.extend(shards.into_iter().filter(|s| !has(s)));
        } else {
            missing.push(index::SINGLE.to_owned());
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_reference_is_replaced_whole_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        let repository: Repository = "a/b@refs/pr/1".parse().unwrap();
        let cache = Cache::new(root.path(), &repository);
        assert_eq!(cache.commit_of(&repository), None);
        cache.note_commit(&repository, COMMIT).unwrap();
        let other = COMMIT.replace('0', "f");
        cache.note_commit(&repository, &other).unwrap();
        assert_eq!(cache.commit_of(&repository), Some(other));
        let file = root.path().join("models--a--b/refs/refs/pr/1");
        fs::write(&file, "../../../etc").unwrap();
        assert_eq!(cache.commit_of(&repository), None);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_reference_that_cannot_be_placed_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let repository: Repository = "a/b".parse().unwrap();
        let refs = root.path().join("models--a--b/refs");
        fs::create_dir_all(refs.join("main/x")).unwrap();
        assert!(Cache::new(root.path(), &repository).note_commit(&repository, COMMIT).is_err());
        let names: Vec<_> = fs::read_dir(&refs).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["main"]);
    }

    #[test]
    fn no_other_file_stands_in_for_the_tokenizer() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["config.json", "tokenizer.model", "vocab.json", index::SINGLE] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(missing(dir.path()).unwrap(), ["tokenizer.json"]);
        fs::write(dir.path().join("tokenizer.json"), "").unwrap();
        assert_eq!(missing(dir.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let repository: Repository = "a/b".parse().unwrap();
        let cache = Cache::new(root.path(), &repository);
        cache.prepare().unwrap();
        for (id, text) in [("one", "1"), ("two", "2")] {
            fs::write(cache.blob(id), text).unwrap();
            cache.link(COMMIT, "config.json", id).unwrap();
            cache.link(COMMIT, "config.json", id).unwrap();
            assert_eq!(fs::read_to_string(cache.snapshot(COMMIT).join("config.json")).unwrap(), text);
        }
    }
}
