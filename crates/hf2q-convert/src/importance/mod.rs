//! Importance matrices: how much each column of a weight is used, measured on a text. Quantization keeps columns
//! better whose inputs are large.
//!
//! Files are exchanged with llama.cpp's `llama-imatrix` and `llama-quantize`; a file of the binary form that preceded
//! GGUF can be read.

mod container;
mod entry;
mod error;
mod legacy;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;

use hf2q_gguf::{Bytes, Gguf, Metadata};

pub use entry::Entry;
pub use error::ImportanceError;
pub use weights::Weights;

/// Sums of squared inputs for each column of the weights of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// By GGUF name of the weight.
    entries: BTreeMap<String, Entry>,
    datasets: Vec<String>,
    chunk_count: u32,
    /// Rows of a chunk; `None` in the older binary form, whose counts are chunks, not rows.
    chunk_size: Option<u32>,
    warnings: Vec<String>,
}

impl Importance {
    /// Nothing measured yet, in chunks of `chunk_size` rows of these texts.
    pub fn new(chunk_size: u32, datasets: Vec<String>) -> Self {
        let entries = BTreeMap::new();
        Self { entries, datasets, chunk_count: 0, chunk_size: Some(chunk_size.max(1)), warnings: Vec::new() }
    }

    /// Reads a file, or several: their sums and counts are added.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, holds what no data gives, or is of another model than the first.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ImportanceError> {
        let mut paths = paths.iter().map(AsRef::as_ref);
        let mut all = Self::read(paths.next().ok_or(ImportanceError::NoFile)?)?;
        for path in paths {
            all.merge(Self::read(path)?).map_err(|e| e.in_file(path))?;
        }
        all.warnings.extend(all.unrouted());
        Ok(all)
    }

    fn read(path: &Path) -> Result<Self, ImportanceError> {
        let io = |source| ImportanceError::Io { path: path.to_owned(), source };
        let bytes = Bytes::map(path).map_err(io)?;
        let read = match is_container(&bytes) {
            true => container::read(&Gguf::open(path)?),
            false => legacy::read(&bytes),
        };
        read.map_err(|e| e.in_file(path))
    }

    /// Reads one file that lies in memory.
    ///
    /// # Errors
    /// As [`Importance::open`].
    pub fn parse(bytes: Bytes) -> Result<Self, ImportanceError> {
        match is_container(&bytes) {
            true => container::read(&Gguf::parse(bytes)?),
            false => legacy::read(&bytes),
        }
    }

    /// Adds what was measured of one weight.
    ///
    /// # Errors
    /// Sums are not finite, or do not fit the counts, or those that are there already.
    pub fn add(&mut self, tensor: &str, entry: Entry) -> Result<(), ImportanceError> {
        entry.check(tensor)?;
        self.add_checked(tensor, entry)?;
        self.count_chunks();
        Ok(())
    }

    /// Adds the sums and counts of another text.
    ///
    /// # Errors
    /// It is of another model.
    pub fn merge(&mut self, mut other: Self) -> Result<(), ImportanceError> {
        if self.chunk_size != other.chunk_size {
            let size = self.chunk_size.or(other.chunk_size).unwrap_or(container::USUAL_CHUNK);
            if let (Some(mine), Some(theirs)) = (self.chunk_size, other.chunk_size) {
                self.warnings.push(format!(
                    "files in chunks of {mine} and of {theirs} rows are merged; the sums are right"
                ));
            }
            self.in_rows(size);
            other.in_rows(size);
        }
        for (name, entry) in other.entries {
            self.add_checked(&name, entry)?;
        }
        self.chunk_count = self.chunk_count.saturating_add(other.chunk_count);
        self.count_chunks();
        self.datasets.extend(other.datasets);
        self.warnings.extend(other.warnings);
        Ok(())
    }

    /// Writes a GGUF file through a temporary one. `inputs` are files that are being read.
    ///
    /// # Errors
    /// The output is one of the inputs, or an answer of the operating system. Nothing is left at `path` then.
    pub fn write(&self, path: &Path, inputs: &[&Path]) -> Result<(), ImportanceError> {
        let mut all = self.clone();
        all.in_rows(container::USUAL_CHUNK);
        for (name, entry) in &all.entries {
            entry.check(name)?;
        }
        Ok(container::write(&all, path, inputs)?)
    }

    /// Drops the weights whose name `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.entries.retain(|name, _| keep(name));
    }

    /// GGUF names of the weights, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// What was measured of a weight.
    pub fn entry(&self, tensor: &str) -> Option<&Entry> {
        self.entries.get(tensor)
    }

    /// The texts it was measured on, as their users named them.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// Chunks that were computed.
    pub fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    /// Rows of a chunk, where the file says.
    pub fn chunk_size(&self) -> Option<u32> {
        self.chunk_size
    }

    /// What a user should know about the files.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Notes in a quantized file which importance it was made with. `file` is what the user called it.
    pub fn note(&self, file: &str, metadata: &mut Metadata) {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        metadata.insert("quantize.imatrix.file", file);
        if let Some(first) = self.datasets.first() {
            metadata.insert("quantize.imatrix.dataset", first.as_str());
        }
        metadata.insert("quantize.imatrix.entries_count", count);
        if self.chunk_count > 0 {
            metadata.insert("quantize.imatrix.chunks_count", self.chunk_count);
        }
    }

    /// Which experts were never routed to, in one sentence.
    pub fn unrouted(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let missing = |(name, entry): (&String, &Entry)| {
            let zero = entry.counts.iter().filter(|n| **n == 0).count();
            (zero > 0).then(|| format!("{zero} of {} in {name}", entry.counts.len()))
        };
        let all: Vec<String> = self.entries.iter().filter_map(missing).collect();
        let more = all.len().checked_sub(SHOWN).filter(|n| *n > 0);
        let more = more.map(|n| format!(" and {n} more tensors")).unwrap_or_default();
        let shown = all.get(..SHOWN).unwrap_or(&all).join(", ");
        (!all.is_empty()).then(|| {
            format!("experts that no row of the text was routed to get neutral importance: {shown}{more}; a longer text reaches more")
        })
    }

    fn add_checked(&mut self, tensor: &str, entry: Entry) -> Result<(), ImportanceError> {
        let Some(mine) = self.entries.get_mut(tensor) else {
            self.entries.insert(tensor.to_owned(), entry);
            return Ok(());
        };
        mine.add(&entry, tensor)?;
        // Two finite sums can make one that is not.
        mine.check(tensor)
    }

    /// Counts of the older form become rows.
    fn in_rows(&mut self, chunk_size: u32) {
        if self.chunk_size.is_none() {
            self.entries.values_mut().for_each(|e| e.repeat(chunk_size.into()));
            self.chunk_size = Some(chunk_size);
        }
    }

    /// Chunks of the weight that saw most rows.
    fn count_chunks(&mut self) {
        let Some(size) = self.chunk_size.map(u64::from) else { return };
        let rows = self.entries.values().flat_map(|e| &e.counts).max().copied().unwrap_or(0);
        self.chunk_count = u32::try_from(rows.saturating_add(size / 2) / size).unwrap_or(u32::MAX);
    }
}

/// Whether the reader of GGUF files shall judge a file; it says most about empty ones and those of the other byte order.
fn is_container(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes.starts_with(b"GGUF") || bytes.starts_with(b"FUGG")
}
