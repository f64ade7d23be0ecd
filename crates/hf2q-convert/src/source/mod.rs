//! What is converted: the tensors and metadata of a checkpoint folder or of a GGUF file.

mod checkpoint;
mod gguf;
mod metadata;
mod target;

use std::path::{Path, PathBuf};

use hf2q_arch::Config;
use hf2q_gguf::{Metadata, TensorType, same_file};

use crate::error::ConvertError;
use crate::rows::Rows;
use target::Target;

/// A model to be written in other types.
#[derive(Debug)]
pub struct Source {
    pub(crate) kind: Kind,
    pub(crate) config: Config,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<SourceTensor>,
    /// Every file that must not be overwritten.
    pub(crate) inputs: Vec<PathBuf>,
    /// What a user should know.
    pub(crate) warnings: Vec<String>,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Checkpoint,
    Gguf,
}

/// A tensor under its GGUF name.
#[derive(Clone, Debug)]
pub(crate) struct SourceTensor {
    pub(crate) name: String,
    /// In GGUF order: columns first.
    pub(crate) shape: Vec<u64>,
    /// The type of the tensor where it is not quantized.
    pub(crate) natural: TensorType,
    pub(crate) rows: Rows,
}

impl Source {
    /// Opens a folder with `config.json`, safetensors and tokenizer files, or a GGUF file. Of the weights only
    /// an output matrix is read that may equal the embedding.
    ///
    /// # Errors
    /// The files are damaged, incomplete, or of an architecture that is not supported.
    pub fn open(path: &Path) -> Result<Self, ConvertError> {
        if path.is_dir() { checkpoint::open(path, None) } else { gguf::open(path) }
    }

    /// The same for a checkpoint of a drafter, whose tokens, and what else its files leave open, are those of its target: a folder
    /// or a GGUF file too.
    ///
    /// # Errors
    /// As [`Source::open`]; it is no checkpoint of a drafter, or one for another model: the first difference is named.
    pub fn open_drafter(path: &Path, target: &Path) -> Result<Self, ConvertError> {
        let target = Target::open(target)?;
        if path.is_dir() { checkpoint::open(path, Some(&target)) } else { Err(target.no_drafter(path, None)) }
    }

    /// The model's architecture and sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the model calls itself.
    pub fn name(&self) -> Option<&str> {
        self.metadata.opt_str("general.name").ok().flatten()
    }

    /// Whether a path leads to one of the files that are read.
    pub fn reads(&self, path: &Path) -> bool {
        self.inputs.iter().any(|input| same_file(input, path))
    }

    /// Bytes of all tensors as they are stored now.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.rows.source_bytes(t.rows.count())).sum()
    }
}
