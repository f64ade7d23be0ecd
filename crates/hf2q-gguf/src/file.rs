//! An opened model: one file, or all files of a split set.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::bytes::Bytes;
use crate::error::{GgufError, io_error};
use crate::header::Header;
use crate::metadata::Metadata;
use crate::split::{SplitKeys, SplitName};
use crate::tensor::TensorInfo;

/// An opened GGUF model. Its tensors' data is mapped, not read, and stays mapped while this or any [`Bytes`] of it
/// lives. See the crate's documentation for what happens if a file is shortened meanwhile.
#[derive(Clone, Debug)]
pub struct Gguf {
    paths: Vec<PathBuf>,
    files: Vec<Bytes>,
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// One file, parsed.
struct Part {
    path: PathBuf,
    bytes: Bytes,
    header: Header,
    split: Option<SplitKeys>,
}

impl Gguf {
    /// Opens a file, or the set that a part of a split model belongs to.
    ///
    /// Metadata is that of the set's first file; the others' is checked for the `split.*` keys and not kept.
    ///
    /// # Errors
    /// The file cannot be read, is no GGUF file or is damaged; parts are missing or do not fit together.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let part = Part::open(path)?;
        let name = SplitName::parse(path);
        match (part.split, name) {
            (None, Some(SplitName { number, count, .. })) if count > 1 => {
                Err(GgufError::SplitKeysMissing { number, count }.in_file(path))
            }
            (None, _) => Ok(Self::from_part(part)),
            (Some(keys), None) => Err(GgufError::SplitName { count: keys.count }.in_file(path)),
            (Some(keys), Some(name)) => {
                keys.check_name(&name).map_err(|e| e.in_file(path))?;
                Self::from_parts(parts(part, &name)?)
            }
        }
    }

    /// Parses a whole file that lies in memory. Tensor data is aligned in memory only as far as `bytes` is.
    ///
    /// # Errors
    /// As [`Gguf::open`]; also for one part of a split model.
    pub fn parse(bytes: Bytes) -> Result<Self, GgufError> {
        let part = Part::parse(PathBuf::new(), bytes)?;
        if let Some(keys) = part.split {
            return Err(GgufError::SplitBytes { count: keys.count });
        }
        Ok(Self { paths: Vec::new(), ..Self::from_part(part) })
    }

    fn from_part(part: Part) -> Self {
        let Part { path, bytes, header, .. } = part;
        let index = header.tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Self {
            paths: vec![path],
            files: vec![bytes],
            version: header.version,
            alignment: header.alignment,
            metadata: header.metadata,
            tensors: header.tensors,
            index,
        }
    }

    /// Joins the files of a set, in order.
    fn from_parts(parts: Vec<Part>) -> Result<Self, GgufError> {
        let mut parts = parts.into_iter();
        let first = parts.next().expect("a set has at least two files");
        let announced = first.split.map_or(0, |keys| keys.tensors);
        let mut whole = Self::from_part(first);
        for part in parts {
            let file = whole.files.len();
            for mut tensor in part.header.tensors {
                if whole.index.insert(tensor.name.clone(), whole.tensors.len()).is_some() {
                    return Err(GgufError::DuplicateTensor { tensor: tensor.name }.in_file(&part.path));
                }
                tensor.file = file;
                whole.tensors.push(tensor);
            }
            whole.paths.push(part.path);
            whole.files.push(part.bytes);
        }
        let found = whole.tensors.len() as u64;
        if found != announced {
            let error = GgufError::SplitTensors { found, expected: announced };
            return Err(error.in_file(&whole.paths[0]));
        }
        Ok(whole)
    }

    /// The keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file or files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// A tensor's data, without a copy.
    ///
    /// # Panics
    /// The tensor is of another model.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        // Cannot be cut: the extent was checked against the file's length, which fits `usize`.
        &self.files[tensor.file][tensor.offset as usize..][..tensor.bytes as usize]
    }

    /// A tensor's data as a view that keeps the file mapped.
    ///
    /// # Panics
    /// The tensor is of another model.
    pub fn bytes(&self, tensor: &TensorInfo) -> Bytes {
        let start = tensor.offset as usize;
        let view = self.files[tensor.file].slice(start..start + tensor.bytes as usize);
        view.expect("a tensor of this model lies in its file")
    }

    /// The model's files in order; none if it was parsed from memory.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes (of the first file).
    pub fn alignment(&self) -> u64 {
        self.alignment
    }
}

impl Part {
    fn open(path: &Path) -> Result<Self, GgufError> {
        regular_file(path)?;
        let bytes = Bytes::map(path).map_err(io_error(path, "open it"))?;
        Self::parse(path.to_owned(), bytes).map_err(|e| e.in_file(path))
    }

    fn parse(path: PathBuf, bytes: Bytes) -> Result<Self, GgufError> {
        let header = Header::parse(&bytes)?;
        let split = SplitKeys::read(&header.metadata)?;
        Ok(Self { path, bytes, header, split })
    }
}

/// Opens the rest of the set that `opened` with its name belongs to, and checks that all belong together.
fn parts(opened: Part, name: &SplitName) -> Result<Vec<Part>, GgufError> {
    let paths = name.paths();
    let missing: Vec<PathBuf> = paths.iter().filter(|p| !p.exists()).cloned().collect();
    if !missing.is_empty() {
        return Err(GgufError::SplitMissing { missing });
    }
    let own = name.number as usize - 1;
    let mut opened = Some(opened);
    let mut parts: Vec<Part> = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let part = match opened.take_if(|_| i == own) {
            Some(part) => part,
            None => Part::open(path)?,
        };
        let misfit = |e: GgufError| e.in_file(path);
        let Some(keys) = part.split else {
            return Err(misfit(GgufError::SplitKeysMissing { number: i as u32 + 1, count: name.count }));
        };
        let first = parts.first().and_then(|part| part.split).unwrap_or(keys);
        keys.check(i as u64, first).map_err(misfit)?;
        parts.push(part);
    }
    Ok(parts)
}

/// Refuses what is no file, before it is opened: opening a pipe would wait for its writer.
pub(crate) fn regular_file(path: &Path) -> Result<(), GgufError> {
    let meta = fs::metadata(path).map_err(io_error(path, "open it"))?;
    let found = match meta {
        m if m.is_file() => return Ok(()),
        m if m.is_dir() => "a folder",
        _ => "a pipe or a device",
    };
    Err(GgufError::NotAFile { path: path.to_owned(), found })
}
