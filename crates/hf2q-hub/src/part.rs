//! A content on its way: a file that grows, and the hash of what it holds.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::content::{Content, Digest};
use crate::error::HubError;

/// Bytes read at once.
pub(crate) const CHUNK: usize = 256 << 10;

/// `HASH.incomplete`.
pub(crate) struct Part<'a> {
    path: PathBuf,
    file: File,
    content: &'a Content,
    have: u64,
    digest: Digest,
    /// Some of it was left by an earlier attempt.
    resumed: bool,
}

impl<'a> Part<'a> {
    /// Opens what an earlier attempt left, or begins. Calls `check` now and then while it hashes what is there.
    pub(crate) fn open(
        path: PathBuf,
        content: &'a Content,
        check: impl Fn() -> Result<(), HubError>,
    ) -> Result<Self, HubError> {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(HubError::io(&path))?;
        let found = file.metadata().map_err(HubError::io(&path))?.len();
        let mut part =
            Self { path, file, content, have: 0, digest: Digest::new(content), resumed: found > 0 };
        if found > content.bytes {
            part.restart()?;
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            check()?;
            match part.file.read(&mut buffer).map_err(HubError::io(&part.path))? {
                0 => break,
                n => {
                    part.digest.update(&buffer[..n]);
                    part.have += n as u64;
                }
            }
        }
        Ok(part)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.have == self.content.bytes
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Begins anew.
    pub(crate) fn restart(&mut self) -> Result<(), HubError> {
        self.file.set_len(0).map_err(HubError::io(&self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(HubError::io(&self.path))?;
        self.digest = Digest::new(self.content);
        (self.have, self.resumed) = (0, false);
        Ok(())
    }

    /// Takes the next bytes; `false`, with nothing taken, if that is more than the content has.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, HubError> {
        if bytes.len() as u64 > self.content.bytes - self.have {
            return Ok(false);
        }
        self.file.write_all(bytes).map_err(HubError::io(&self.path))?;
        self.digest.update(bytes);
        self.have += bytes.len() as u64;
        Ok(true)
    }

    /// The hash of what is there if it is not that of the content.
    pub(crate) fn mismatch(&self) -> Option<String> {
        self.digest.finish().filter(|found| *found != self.content.id)
    }

    /// Puts the whole content in its place.
    pub(crate) fn finish(self, blob: &Path) -> Result<(), HubError> {
        self.file.sync_data().map_err(HubError::io(&self.path))?;
        drop(self.file);
        std::fs::rename(&self.path, blob).map_err(HubError::io(blob))
    }

    /// Removes it.
    pub(crate) fn discard(self) -> Result<(), HubError> {
        drop(self.file);
        std::fs::remove_file(&self.path).map_err(HubError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_on_where_it_ended_and_knows_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let (path, blob) = (dir.path().join("x.incomplete"), dir.path().join("x"));
        let content = Content::git("95d09f2b10159347eece71399a7e2e907ea3df4f", 11).unwrap();
        let open = || Part::open(path.clone(), &content, || Ok(())).unwrap();
        let mut part = open();
        assert!(part.push(b"hello ").unwrap() && !part.is_whole() && !part.is_resumed());
        drop(part);
        let mut part = open();
        assert_eq!((part.have(), part.is_resumed()), (6, true));
        assert!(!part.push(b"world, and more").unwrap());
        assert!(part.push(b"world").unwrap() && part.is_whole());
        assert_eq!(part.mismatch(), None);
        part.finish(&blob).unwrap();
        assert!(!path.exists());
        assert_eq!(std::fs::read(&blob).unwrap(), b"hello world");
        std::fs::write(&path, "more than the eleven bytes").unwrap();
        assert_eq!((open().have(), open().is_resumed()), (0, false));
        std::fs::write(&path, "Hello world").unwrap();
        assert!(open().mismatch().is_some());
        assert!(matches!(
            Part::open(path.clone(), &content, || Err(HubError::Cancelled)),
            Err(HubError::Cancelled)
        ));
        assert!(path.exists());
    }
}
