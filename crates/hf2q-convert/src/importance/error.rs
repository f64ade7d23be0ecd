//! Why importance cannot be used.

use std::path::{Path, PathBuf};

use hf2q_gguf::GgufError;

/// What is wrong with an importance file, or with what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportanceError {
    /// In this file.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ImportanceError>,
    },
    /// A file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A GGUF file of another kind.
    #[error("not an importance file: {found}; make one with `hf2q imatrix`")]
    Kind {
        /// What it is instead.
        found: String,
    },
    /// A file without the magic of GGUF that is no older importance file either.
    #[error("neither a GGUF file nor an importance file of the older binary form: {why}")]
    Legacy {
        /// What contradicts that form.
        why: String,
    },
    /// One of the two tensors that belong together is missing.
    #[error("{present} is there, but {missing} is not")]
    Pair {
        /// The name of one.
        present: String,
        /// The name of the other.
        missing: String,
    },
    /// Sums or counts of another type.
    #[error("{tensor} is of type {found}, expected f32")]
    Type {
        /// Name in the file.
        tensor: String,
        /// Its type.
        found: String,
    },
    /// Sums that do not belong to the counts.
    #[error("{tensor}: {found} sums, expected {expected}")]
    Sums {
        /// Name of the weight.
        tensor: String,
        /// Number of sums.
        found: usize,
        /// What fits.
        expected: String,
    },
    /// A sum that no data gives.
    #[error("{tensor}: {what} is {found}, expected {expected}; measure it again")]
    Value {
        /// Name of the weight.
        tensor: String,
        /// Which value.
        what: String,
        /// The value.
        found: f32,
        /// What is accepted.
        expected: &'static str,
    },
    /// The same weight has other sizes in two files.
    #[error(
        "{tensor} has {found} values for {found_matrices} matrices, an earlier file has {expected} for {expected_matrices}; both files must be of one model"
    )]
    Merge {
        /// Name of the weight.
        tensor: String,
        /// Values here.
        found: usize,
        /// Counts here.
        found_matrices: usize,
        /// Values of the earlier file.
        expected: usize,
        /// Counts of the earlier file.
        expected_matrices: usize,
    },
    /// The importance is of another model.
    #[error("the importance of {tensor} has {found} values, the tensor needs {columns} columns for {experts} matrices, {}; the file was made for another model", columns.saturating_mul(*experts))]
    Columns {
        /// Name of the weight.
        tensor: String,
        /// Values there are.
        found: usize,
        /// Columns of the weight.
        columns: usize,
        /// Matrices of the weight.
        experts: usize,
    },
    /// No file was given.
    #[error("no importance file was given")]
    NoFile,
    /// The container is damaged, or could not be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

impl ImportanceError {
    /// Says which file it is about.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            // These name the file already.
            Self::Gguf(_) | Self::Io { .. } | Self::File { .. } => self,
            other => Self::File { path: path.to_owned(), source: Box::new(other) },
        }
    }
}
