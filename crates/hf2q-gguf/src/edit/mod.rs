//! Changes metadata of files that exist already; tensor data is copied as it is.

mod frame;
mod rules;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use crate::bytes::Bytes;
use crate::error::{GgufError, io_error};
use crate::file::regular_file;
use crate::metadata::Metadata;
use crate::same::same_file;
use crate::split::{SplitKeys, SplitName};
use crate::value::Value;
use crate::write::{Taken, folder, name_each, sync_folder, temporary};

use frame::Frame;
pub use frame::FramedTensor;
use rules::Operation;

/// Bytes that are copied between two looks at whether to go on.
const PIECE: u64 = 64 << 20;

/// Metadata of a file, or of the first file of a split set, while it is being changed.
///
/// Nothing is written before [`Edit::write`]. Tensors are not decoded, so that files with types unknown to this crate
/// can be edited too: their descriptions and data keep every byte.
#[derive(Debug)]
pub struct Edit {
    /// The file whose metadata is changed, then the others of its set.
    paths: Vec<PathBuf>,
    frame: Frame,
    edited: Metadata,
    /// Opened without the rest of its set.
    alone: bool,
    force: bool,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value in the file; `None` if the key is new.
    pub old: Option<Value>,
    /// Its value after the edit; `None` if it is removed.
    pub new: Option<Value>,
}

impl Edit {
    /// Opens a file, or the set that a part of a split model belongs to.
    ///
    /// # Errors
    /// The file cannot be read, is no GGUF file or is damaged; parts of the set are missing.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let frame = read(path)?;
        let name = SplitName::parse(path);
        match (SplitKeys::read(&frame.metadata).map_err(|e| e.in_file(path))?, name) {
            (None, _) => Ok(Self::new(vec![path.to_owned()], frame)),
            (Some(keys), None) => Err(GgufError::SplitName { count: keys.count }.in_file(path)),
            (Some(keys), Some(name)) => {
                keys.check_name(&name).map_err(|e| e.in_file(path))?;
                let paths = name.paths();
                let missing: Vec<PathBuf> = paths.iter().filter(|p| !p.exists()).cloned().collect();
                if !missing.is_empty() {
                    return Err(GgufError::SplitMissing { missing });
                }
                let first = read(&paths[0])?;
                let found = SplitKeys::read(&first.metadata).map_err(|e| e.in_file(&paths[0]))?;
                let found = found.ok_or(GgufError::SplitKeysMissing { number: 1, count: name.count });
                found.and_then(|found| found.check(0, keys)).map_err(|e| e.in_file(&paths[0]))?;
                Ok(Self::new(paths, first))
            }
        }
    }

    /// Opens one file by itself, whatever its `split.*` keys say, so that they can be removed where they are wrong.
    /// Changes are forced, see [`Edit::force`].
    ///
    /// # Errors
    /// As [`Edit::open`].
    pub fn open_alone(path: &Path) -> Result<Self, GgufError> {
        let edit = Self::new(vec![path.to_owned()], read(path)?);
        Ok(Self { alone: true, force: true, ..edit })
    }

    fn new(paths: Vec<PathBuf>, frame: Frame) -> Self {
        let edited = frame.metadata.clone();
        Self { paths, frame, edited, alone: false, force: false }
    }

    /// Lets changes pass that make most files unusable, such as another architecture. What would make the file
    /// unreadable is refused all the same.
    #[must_use]
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    /// The file whose metadata is edited, then the others of its set.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The metadata as the file has it.
    pub fn original(&self) -> &Metadata {
        &self.frame.metadata
    }

    /// The metadata as it would be written.
    pub fn metadata(&self) -> &Metadata {
        &self.edited
    }

    /// The tensors of the edited file (of a split set, those of its first file).
    pub fn tensors(&self) -> &[FramedTensor] {
        &self.frame.tensors
    }

    /// Sets a key. A new one goes to the end.
    ///
    /// # Errors
    /// The key must not be set to this, or no key can be called that.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), GgufError> {
        if self.edited.get(key).is_none() {
            rules::check_name(key)?;
        }
        self.permit(key, Operation::Set(&value))?;
        self.edited.insert(key, value);
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// The key must not be removed, or is not there.
    pub fn unset(&mut self, key: &str) -> Result<(), GgufError> {
        if self.edited.get(key).is_none() {
            return Err(GgufError::AbsentKey { key: key.to_owned() });
        }
        self.permit(key, Operation::Unset)?;
        self.edited.remove(key);
        Ok(())
    }

    fn permit(&self, key: &str, operation: Operation<'_>) -> Result<(), GgufError> {
        let Some(refusal) = rules::refusal(key, &operation, &self.frame.metadata, self.alone) else {
            return Ok(());
        };
        if self.force && refusal.can_force {
            return Ok(());
        }
        Err(GgufError::ProtectedKey {
            key: key.to_owned(),
            why: refusal.why,
            hint: if refusal.can_force { "; force overrides this" } else { "" },
        })
    }

    /// What differs from the file: changed and removed keys in the file's order, then new ones.
    pub fn changes(&self) -> Vec<Change> {
        let change = |key: &str, old: Option<&Value>, new: Option<&Value>| Change {
            key: key.to_owned(),
            old: old.cloned(),
            new: new.cloned(),
        };
        let before = self.original().iter().filter_map(|(key, old)| {
            let new = self.edited.get(key);
            (!new.is_some_and(|new| identical(old, new))).then(|| change(key, Some(old), new))
        });
        let added = self.edited.iter().filter(|(key, _)| self.original().get(key).is_none());
        before.chain(added.map(|(key, new)| change(key, None, Some(new)))).collect()
    }

    /// Writes the edited file to `output`, or in place of the original. Of a split set, only the first file is written in
    /// place; with an output, all are, named after it as [`GgufWriter::create_split`](crate::GgufWriter::create_split)
    /// does. Returns the files that were written, in order.
    ///
    /// Everything is written to temporary files beside the outputs and renamed when it is complete, on the disk and was
    /// read back: until then the original is untouched. A symbolic link in the place of an output is replaced by
    /// the new file; what it leads to stays as it was.
    ///
    /// `advance` is told the bytes written and their total, and answers whether to go on.
    ///
    /// # Errors
    /// An output that exists already and is not the original, an answer of the operating system, a file that changes
    /// meanwhile; or `advance` said no.
    pub fn write(
        &self,
        output: Option<&Path>,
        advance: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<PathBuf>, GgufError> {
        let (outputs, taken) = self.outputs(output)?;
        let header = self.frame.header(&self.edited);
        let mut total = header.len() as u64 + self.frame.data_bytes();
        for path in &self.paths[1..outputs.len()] {
            total = total.saturating_add(fs::metadata(path).map_err(io_error(path, "read it"))?.len());
        }
        let mut copy = Copy { done: 0, total, advance };
        let mut finished = vec![self.edited_file(&outputs[0], &header, &mut copy)?];
        for (from, to) in self.paths.iter().zip(&outputs).skip(1) {
            finished.push(whole_file(from, to, &mut copy)?);
        }
        name_each(finished, &outputs, taken)?;
        sync_folder(folder(&outputs[0]));
        Ok(outputs)
    }

    /// Where to write, in the order of the files. Only the original is replaced.
    fn outputs(&self, output: Option<&Path>) -> Result<(Vec<PathBuf>, Taken), GgufError> {
        let Some(output) = output else { return Ok((self.paths[..1].to_vec(), Taken::Replaced)) };
        let outputs = match self.paths.len() {
            1 => vec![output.to_owned()],
            // A set has at most as many files as fit its keys' 16 bits.
            n => SplitName::new_paths(output, n as u32),
        };
        let is_own = |(path, own): (&PathBuf, &PathBuf)| same_file(path, own);
        if outputs.iter().zip(&self.paths).all(is_own) {
            // The other files of the set are there already.
            return Ok((outputs[..1].to_vec(), Taken::Replaced));
        }
        if let Some(path) = outputs.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(GgufError::OutputExists { path: path.clone() });
        }
        Ok((outputs, Taken::Kept))
    }

    fn edited_file(&self, to: &Path, header: &[u8], copy: &mut Copy<'_>) -> Result<TempPath, GgufError> {
        let from = &self.paths[0];
        let mut file = new_file(from, to)?;
        file.write_all(header).map_err(io_error(to, "write it"))?;
        copy.advance(header.len() as u64)?;
        let mut source = File::open(from).map_err(io_error(from, "open it"))?;
        source.seek(SeekFrom::Start(self.frame.data_start)).map_err(io_error(from, "read it"))?;
        copy.rest((&mut source, from), (&mut file, to), self.frame.data_bytes())?;
        let finished = close(file, to)?;
        self.read_back(&finished, to)?;
        Ok(finished)
    }

    /// The new file must say what was meant, and describe the tensors as before.
    fn read_back(&self, file: &Path, to: &Path) -> Result<(), GgufError> {
        let frame = read(file)?;
        let same = frame.metadata.len() == self.edited.len()
            && frame.metadata.iter().zip(self.edited.iter()).all(|(a, b)| a.0 == b.0 && identical(a.1, b.1))
            && frame.descriptions == self.frame.descriptions
            && frame.data_bytes() == self.frame.data_bytes();
        if same { Ok(()) } else { Err(GgufError::ReadBack { path: to.to_owned() }) }
    }
}

/// Parses a file's frame; the file is mapped only for as long as that takes.
fn read(path: &Path) -> Result<Frame, GgufError> {
    regular_file(path)?;
    let bytes = Bytes::map(path).map_err(io_error(path, "open it"))?;
    Frame::parse(&bytes).map_err(|e| e.in_file(path))
}

/// Equal as a file stores them: a NaN is itself, and zeros have signs.
fn identical(a: &Value, b: &Value) -> bool {
    let stored = |value: &Value| {
        let mut out = Vec::new();
        crate::encode::put_value(&mut out, value);
        out
    };
    a.ty() == b.ty() && stored(a) == stored(b)
}

/// Bytes on their way, and who is told.
struct Copy<'a> {
    done: u64,
    total: u64,
    advance: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Copy<'_> {
    fn advance(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.done += bytes;
        if (self.advance)(self.done, self.total) { Ok(()) } else { Err(GgufError::Cancelled) }
    }

    /// Copies `bytes` bytes, the whole rest of the source. The kernel does it where it can, without a copy on file
    /// systems that share blocks.
    fn rest(
        &mut self,
        (source, from): (&mut File, &Path),
        (target, to): (&mut NamedTempFile, &Path),
        bytes: u64,
    ) -> Result<(), GgufError> {
        let mut copied = 0;
        while copied < bytes {
            let mut piece = (&mut *source).take(PIECE.min(bytes - copied));
            let n = io::copy(&mut piece, target.as_file_mut()).map_err(io_error(to, "write it"))?;
            if n == 0 {
                break;
            }
            copied += n;
            self.advance(n)?;
        }
        let more = source.read(&mut [0]).map_err(io_error(from, "read it"))?;
        if copied == bytes && more == 0 { Ok(()) } else { Err(GgufError::Changed { path: from.to_owned() }) }
    }
}

fn whole_file(from: &Path, to: &Path, copy: &mut Copy<'_>) -> Result<TempPath, GgufError> {
    let mut source = File::open(from).map_err(io_error(from, "open it"))?;
    let bytes = source.metadata().map_err(io_error(from, "read it"))?.len();
    let mut file = new_file(from, to)?;
    copy.rest((&mut source, from), (&mut file, to), bytes)?;
    close(file, to)
}

/// An empty file beside `to` with the permissions of `from`.
fn new_file(from: &Path, to: &Path) -> Result<NamedTempFile, GgufError> {
    let file = temporary(folder(to)).map_err(io_error(to, "create a file beside it"))?;
    let wanted = fs::metadata(from).map_err(io_error(from, "read it"))?.permissions();
    let given = file.as_file().metadata().map_err(io_error(to, "read it"))?.permissions();
    if wanted != given {
        file.as_file().set_permissions(wanted).map_err(io_error(to, "set its permissions"))?;
    }
    Ok(file)
}

fn close(file: NamedTempFile, to: &Path) -> Result<TempPath, GgufError> {
    file.as_file().sync_all().map_err(io_error(to, "flush it to the disk"))?;
    Ok(file.into_temp_path())
}
