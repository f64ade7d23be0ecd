//! Builds small files in memory, for tests.

use std::path::{Path, PathBuf};

use crate::bytes::Bytes;
use crate::encode::Content;
use crate::error::GgufError;
use crate::file::Gguf;
use crate::metadata::Metadata;
use crate::tensor::TensorSpec;
use crate::types::TensorType;
use crate::value::Value;
use crate::write::GgufWriter;

/// Collects keys and tensors and makes a GGUF file of them. Everything is held in memory: for models, use
/// [`GgufWriter`].
///
/// ```
/// use hf2q_gguf::{GgufBuilder, TensorType};
///
/// let model = GgufBuilder::new()
///     .key("general.architecture", "llama")
///     .f32("norm", &[2], &[1.0, -1.0])
///     .tensor("codes", TensorType::I8, &[3, 2], vec![0; 6])
///     .open()?;
/// assert_eq!(model.tensor("codes").map(|t| t.rows()), Some(2));
/// # Ok::<(), hf2q_gguf::GgufError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GgufBuilder {
    metadata: Metadata,
    tensors: Vec<(TensorSpec, Vec<u8>)>,
}

impl GgufBuilder {
    /// No keys, no tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    #[must_use]
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(key, value);
        self
    }

    /// Sets every key of `metadata`.
    #[must_use]
    pub fn metadata(mut self, metadata: &Metadata) -> Self {
        for (key, value) in metadata.iter() {
            self.metadata.insert(key, value.clone());
        }
        self
    }

    /// Adds a tensor; `shape` in GGUF order (`shape[0]` contiguous), `data` as stored.
    #[must_use]
    pub fn tensor(mut self, name: &str, ty: TensorType, shape: &[u64], data: Vec<u8>) -> Self {
        self.tensors.push((TensorSpec { name: name.to_owned(), ty, shape: shape.to_vec() }, data));
        self
    }

    /// Adds a tensor of type [`TensorType::F32`].
    #[must_use]
    pub fn f32(self, name: &str, shape: &[u64], values: &[f32]) -> Self {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, TensorType::F32, shape, data)
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// An impossible tensor, or data of another length than its shape demands.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GgufError> {
        let content = Content::new(self.metadata.clone(), self.specs())?;
        let mut out = content.header(&content.metadata, 0..content.tensors.len());
        for (i, (spec, data)) in self.tensors.iter().enumerate() {
            let (bytes, given) = (content.sizes[i], data.len() as u64);
            let tensor = || spec.name.clone();
            if given > bytes {
                return Err(GgufError::WriteTooMuch { tensor: tensor(), bytes, given });
            }
            if given < bytes {
                let after = self.tensors.len() - i - 1;
                return Err(GgufError::WriteIncomplete { tensor: tensor(), bytes, given, after });
            }
            out.extend_from_slice(data);
            out.resize(out.len().next_multiple_of(content.alignment as usize), 0);
        }
        Ok(out)
    }

    /// The file, opened from memory.
    ///
    /// # Errors
    /// As [`GgufBuilder::to_bytes`].
    pub fn open(&self) -> Result<Gguf, GgufError> {
        Gguf::parse(Bytes::from_vec(self.to_bytes()?))
    }

    /// Writes the file to a path, through [`GgufWriter`].
    ///
    /// # Errors
    /// As [`GgufWriter`]'s.
    pub fn write(&self, path: &Path) -> Result<(), GgufError> {
        self.fill(GgufWriter::create(path, self.metadata.clone(), self.specs())?)?;
        Ok(())
    }

    /// Writes a set of files, through [`GgufWriter::create_split`].
    ///
    /// # Errors
    /// As [`GgufWriter`]'s.
    pub fn write_split(&self, path: &Path, max_bytes: u64) -> Result<Vec<PathBuf>, GgufError> {
        self.fill(GgufWriter::create_split(path, self.metadata.clone(), self.specs(), max_bytes)?)
    }

    fn specs(&self) -> Vec<TensorSpec> {
        self.tensors.iter().map(|(spec, _)| spec.clone()).collect()
    }

    fn fill(&self, mut writer: GgufWriter) -> Result<Vec<PathBuf>, GgufError> {
        for (spec, data) in &self.tensors {
            writer.write(&spec.name, data)?;
        }
        writer.finish()
    }
}
