//! Writes files tensor by tensor; either whole files appear under their names or nothing does.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use crate::durable::Durable;
use crate::encode::Content;
use crate::error::{GgufError, io_error};
use crate::file::regular_file;
use crate::header::ALIGNMENT_KEY;
use crate::metadata::Metadata;
use crate::same::same_file;
use crate::split::{self, MAX_FILES, SplitKeys, SplitName};
use crate::tensor::TensorSpec;

/// Writes a GGUF model of version 3, streaming.
///
/// All tensors are announced at the start; their data follows in the same order, in pieces of any size. The bytes go
/// to a temporary file in the folder of the output. [`GgufWriter::finish`] flushes it to the disk and renames it;
/// dropping the writer without that removes it. A symbolic link at the output's path is replaced, not followed.
#[derive(Debug)]
pub struct GgufWriter {
    content: Content,
    /// The files to write.
    parts: Vec<Part>,
    /// Files that are complete, still under temporary names.
    done: Vec<TempPath>,
    /// The file being written; `None` when all are complete.
    open: Option<Durable>,
    /// The tensor whose turn it is.
    current: usize,
    /// Bytes of it written so far.
    written: u64,
}

/// One file to write.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    tensors: Range<usize>,
}

impl GgufWriter {
    /// Starts one file. `split.*` keys are dropped: the file is a model by itself. Tensor data is aligned to
    /// `general.alignment`, or 32 bytes.
    ///
    /// # Errors
    /// An impossible tensor, name or alignment; a path where no file can be; an answer of the operating system.
    pub fn create(path: &Path, mut metadata: Metadata, tensors: Vec<TensorSpec>) -> Result<Self, GgufError> {
        split::remove_keys(&mut metadata);
        let content = Content::new(metadata, tensors)?;
        let part = Part { path: path.to_owned(), tensors: 0..content.tensors.len() };
        Self::start(content, vec![part])
    }

    /// Starts a set of files `PREFIX-00001-of-0000N.gguf`, where `path` is `PREFIX` or `PREFIX.gguf`, none larger
    /// than `max_bytes` unless a single tensor is (it then has a file of its own) or the metadata in the first file.
    /// What fits one file becomes one ordinary file at `path`.
    ///
    /// # Errors
    /// As [`GgufWriter::create`]; also if the limit makes more than 65535 files.
    pub fn create_split(
        path: &Path,
        mut metadata: Metadata,
        tensors: Vec<TensorSpec>,
        max_bytes: u64,
    ) -> Result<Self, GgufError> {
        split::remove_keys(&mut metadata);
        let content = Content::new(metadata, tensors)?;
        let ranges = cut(&content, max_bytes);
        let files = ranges.len();
        if files == 1 {
            return Self::create(path, content.metadata, content.tensors);
        }
        if files > MAX_FILES {
            return Err(GgufError::SplitCount { max_bytes, files });
        }
        let paths = SplitName::new_paths(path, files as u32);
        let parts = ranges.into_iter().zip(paths).map(|(tensors, path)| Part { path, tensors }).collect();
        Self::start(content, parts)
    }

    fn start(content: Content, parts: Vec<Part>) -> Result<Self, GgufError> {
        for part in &parts {
            if part.path.exists() {
                regular_file(&part.path)?;
            }
        }
        let mut writer = Self { content, parts, done: Vec::new(), open: None, current: 0, written: 0 };
        writer.open_part()?;
        Ok(writer)
    }

    /// The files that [`GgufWriter::finish`] will make.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// Refuses to go on if one of the files to be made is one of `inputs`: the same path, or a symbolic or hard link
    /// to it. Call it before the first write, with every file that is being read.
    ///
    /// # Errors
    /// An output is an input.
    pub fn protect<P: AsRef<Path>>(&self, inputs: impl IntoIterator<Item = P>) -> Result<(), GgufError> {
        for input in inputs {
            let input = input.as_ref();
            if let Some(output) = self.paths().find(|output| same_file(output, input)) {
                return Err(GgufError::SameFile { output: output.to_owned(), input: input.to_owned() });
            }
        }
        Ok(())
    }

    /// Writes the next bytes of the tensor whose turn it is. A tensor is complete when all its bytes are written; then
    /// it is the next one's turn.
    ///
    /// # Errors
    /// It is another tensor's turn, the tensor takes fewer bytes, or an answer of the operating system.
    pub fn write(&mut self, name: &str, chunk: &[u8]) -> Result<(), GgufError> {
        let Some(bytes) = self.content.sizes.get(self.current).copied() else {
            return Err(GgufError::WriteOrder { found: name.to_owned(), expected: "the end".to_owned() });
        };
        let expected = &self.content.tensors[self.current].name;
        if name != expected {
            let expected = format!("tensor `{expected}` (byte {} of {bytes})", self.written);
            return Err(GgufError::WriteOrder { found: name.to_owned(), expected });
        }
        let given = self.written + chunk.len() as u64;
        if given > bytes {
            return Err(GgufError::WriteTooMuch { tensor: name.to_owned(), bytes, given });
        }
        self.put(chunk)?;
        self.written = given;
        if given == bytes { self.end_tensor() } else { Ok(()) }
    }

    /// Flushes everything to the disk and gives the files their names. Returns their paths in order.
    ///
    /// The files of a set get their names one by one, the first file's last, so that a set is complete once its first
    /// file is there. If a name cannot be given, the new files that have theirs are removed.
    ///
    /// # Errors
    /// Data is missing, or an answer of the operating system.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, GgufError> {
        if let Some(bytes) = self.content.sizes.get(self.current) {
            return Err(GgufError::WriteIncomplete {
                tensor: self.content.tensors[self.current].name.clone(),
                bytes: *bytes,
                given: self.written,
                after: self.content.sizes.len() - self.current - 1,
            });
        }
        // Open still only in a file without tensors.
        if self.open.is_some() {
            self.close_part()?;
        }
        let paths: Vec<PathBuf> = self.paths().map(Path::to_owned).collect();
        name_all(self.done, &paths)?;
        sync_folder(folder(&paths[0]));
        Ok(paths)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), GgufError> {
        let path = &self.parts[self.done.len()].path;
        let file = self.open.as_mut().expect("a file is open while tensors are missing");
        file.write(bytes).map_err(io_error(path, "write it"))
    }

    fn end_tensor(&mut self) -> Result<(), GgufError> {
        let padding = self.content.padded(self.current) - self.written;
        self.put(&vec![0; padding as usize])?;
        self.current += 1;
        self.written = 0;
        if self.current < self.parts[self.done.len()].tensors.end {
            return Ok(());
        }
        self.close_part()?;
        if self.done.len() < self.parts.len() { self.open_part() } else { Ok(()) }
    }

    fn open_part(&mut self) -> Result<(), GgufError> {
        let number = self.done.len();
        let part = &self.parts[number];
        let file = temporary(folder(&part.path)).map_err(io_error(&part.path, "create a file beside it"))?;
        self.open = Some(Durable::new(file));
        let header = match self.parts.len() {
            1 => self.content.header(&self.content.metadata, part.tensors.clone()),
            // `create_split` has checked that the numbers fit.
            n => self
                .content
                .header(&part_metadata(&self.content, number as u16, n as u16), part.tensors.clone()),
        };
        self.put(&header)
    }

    fn close_part(&mut self) -> Result<(), GgufError> {
        let path = &self.parts[self.done.len()].path;
        let file = self.open.take().expect("the file is closed once");
        self.done.push(file.finish().map_err(io_error(path, "flush it to the disk"))?);
        Ok(())
    }
}

/// Writes a whole file of another kind the same way: through a temporary file beside it. A file that is there is replaced.
///
/// # Errors
/// An answer of the operating system; nothing is left then.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), GgufError> {
    if path.exists() {
        regular_file(path)?;
    }
    let file = temporary(folder(path)).map_err(io_error(path, "create a file beside it"))?;
    let mut file = Durable::new(file);
    file.write(bytes).map_err(io_error(path, "write it"))?;
    let file = file.finish().map_err(io_error(path, "flush it to the disk"))?;
    name_all(vec![file], &[path.to_owned()])
}

/// Cuts the tensors into files of at most `max_bytes`, at least one tensor in each.
fn cut(content: &Content, max_bytes: u64) -> Vec<Range<usize>> {
    let count = content.tensors.len();
    let mut ranges = Vec::new();
    let mut start = 0;
    while ranges.is_empty() || start < count {
        // The numbers are not known yet; they do not change the length.
        let mut header = Content::base_bytes(&part_metadata(content, ranges.len() as u16, 0));
        let mut data = 0;
        let mut end = start;
        while end < count {
            header += content.description_bytes(end);
            data += content.padded(end);
            let fits = header.next_multiple_of(content.alignment).saturating_add(data) <= max_bytes;
            if !fits && end > start {
                break;
            }
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

/// Metadata of one file of a set: everything in the first, the necessary in the others.
fn part_metadata(content: &Content, number: u16, count: u16) -> Metadata {
    let mut metadata = Metadata::new();
    if number == 0 {
        metadata = content.metadata.clone();
    } else if let Some(alignment) = content.metadata.get(ALIGNMENT_KEY) {
        metadata.insert(ALIGNMENT_KEY, alignment.clone());
    }
    let tensors = i32::try_from(content.tensors.len()).unwrap_or(i32::MAX);
    SplitKeys::write(number, count, tensors, &mut metadata);
    metadata
}

/// What becomes of a file that has a name which is to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// It is replaced.
    Replaced,
    /// It stays and the name is not given, even if it was free a moment ago.
    Kept,
}

/// [`name_each`] where files that are there are replaced.
pub(crate) fn name_all(files: Vec<TempPath>, paths: &[PathBuf]) -> Result<(), GgufError> {
    name_each(files, paths, Taken::Replaced)
}

/// Gives finished files their names, the first file's last. If one cannot be given, the files that have theirs are removed.
pub(crate) fn name_each(files: Vec<TempPath>, paths: &[PathBuf], taken: Taken) -> Result<(), GgufError> {
    for (i, temporary) in files.into_iter().enumerate().rev() {
        if let Err(error) = name(temporary, &paths[i], taken) {
            for named in &paths[i + 1..] {
                // The first error is the one to report.
                let _ = fs::remove_file(named);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn name(temporary: TempPath, path: &Path, taken: Taken) -> Result<(), GgufError> {
    let named = match taken {
        Taken::Replaced => temporary.persist(path),
        Taken::Kept => temporary.persist_noclobber(path).or_else(|error| {
            // Not every file system can do both at once; then looking just before has to do.
            let is_free = path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if is_free { error.path.persist(path) } else { Err(error) }
        }),
    };
    named.map_err(|error| match taken {
        Taken::Kept if path.symlink_metadata().is_ok() => GgufError::OutputExists { path: path.to_owned() },
        _ => io_error(path, "rename the finished file to it")(error.error),
    })
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A new file with the permissions of any other, not those of a secret.
pub(crate) fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".hf2q-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Makes the renames durable. Not every file system can; the files themselves are on the disk already.
pub(crate) fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
