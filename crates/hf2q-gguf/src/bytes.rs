//! Shared, read-only bytes: a range of a memory map or of a vector.

use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::map::{self, map};

/// A cheaply cloned view of bytes that keeps its owner (a file's map, a vector) alive.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Map(Arc<Mmap>),
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Bytes {
    /// All of `owner`'s bytes.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Owner::Memory(Arc::new(owner)), range }
    }

    /// The bytes of a vector.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::from_owner(bytes)
    }

    /// Memory-maps a file. While the map lives, nobody may shorten the file: reading the lost part ends the process
    /// with a signal.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is no regular file (a directory, a pipe, a device).
    pub fn map(path: &Path) -> io::Result<Self> {
        // Asked before opening: opening a pipe waits for its writer.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // An empty range cannot be mapped everywhere.
        if file.metadata()?.len() == 0 {
            return Ok(Self::from_vec(Vec::new()));
        }
        let map = map(&file)?;
        let range = 0..map.len();
        Ok(Self { owner: Owner::Map(Arc::new(map)), range })
    }

    /// Part of these bytes; `None` if the range does not lie within them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Gives the memory that holds these bytes back to the system, which reads them again from the file when they are
    /// used again. For whoever passes once over a file larger than memory, from its start to its end: what lies shortly
    /// before the bytes goes too, since reading nearby may have brought it back. Does nothing to bytes that are not mapped.
    pub fn release(&self) {
        /// Systems map up to this many bytes around one that is read.
        const AROUND: usize = 2 << 20;
        if let Owner::Map(map) = &self.owner {
            map::release(map, self.range.start.saturating_sub(AROUND)..self.range.end);
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.owner {
            Owner::Map(map) => map,
            Owner::Memory(owner) => (**owner).as_ref(),
        };
        &all[self.range.clone()]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}
