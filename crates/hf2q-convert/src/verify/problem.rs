//! What can be wrong with a file that opens.

use hf2q_quant::{Fault, QuantError};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The metadata describe no model that is known here, so that its tensors cannot be checked.
    #[error("the metadata describe no model that is supported: {error}")]
    Model {
        /// Why.
        error: String,
    },
    /// Something about the tokenizer.
    #[error("tokenizer: {what}")]
    Tokenizer {
        /// What is wrong with it.
        what: String,
    },
    /// A tensor that the architecture calls for is not there.
    #[error("{tensor} is missing: the metadata call for it")]
    Missing {
        /// Its name.
        tensor: String,
    },
    /// A tensor that would change results and that the architecture does not know.
    #[error("{tensor} is not part of this architecture: to ignore it would change results")]
    Unsupported {
        /// Its name.
        tensor: String,
    },
    /// A tensor of another shape than the metadata imply.
    #[error("{tensor} has shape {found:?}, the metadata imply {expected:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// Columns first.
        found: Vec<u64>,
        /// Columns first.
        expected: Vec<u64>,
    },
    /// A block that decodes to NaN or infinity.
    #[error("{tensor}: block {block}: {fault}")]
    Block {
        /// The tensor.
        tensor: String,
        /// The first bad block, counted from the start of the tensor.
        block: usize,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A tensor of the source that the file lacks.
    #[error("{tensor} is missing: the source has it")]
    NotInFile {
        /// Its name.
        tensor: String,
    },
    /// A tensor of the file that the source lacks.
    #[error("{tensor} is not in the source")]
    NotInSource {
        /// Its name.
        tensor: String,
    },
    /// A tensor of another shape than in the source.
    #[error("{tensor} has shape {found:?}, in the source {expected:?}")]
    ShapeInSource {
        /// Its name.
        tensor: String,
        /// Columns first.
        found: Vec<u64>,
        /// Columns first.
        expected: Vec<u64>,
    },
    /// Values that cannot be compared, since a type cannot be decoded.
    #[error("{tensor} cannot be compared: {error}")]
    Decode {
        /// The tensor.
        tensor: String,
        /// Why.
        error: QuantError,
    },
    /// The source holds NaN or infinity.
    #[error("{tensor} cannot be compared: the source holds NaN or infinity")]
    SourceNotFinite {
        /// The tensor.
        tensor: String,
    },
    /// Values too far from the source.
    #[error("{tensor}: relative error {found:.4} is above {limit}")]
    Far {
        /// The tensor.
        tensor: String,
        /// Its relative error.
        found: f64,
        /// What is accepted.
        limit: f64,
    },
}

impl Problem {
    /// The tensor it is about, if it is about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Model { .. } | Self::Tokenizer { .. } => None,
            Self::Missing { tensor }
            | Self::Unsupported { tensor }
            | Self::Shape { tensor, .. }
            | Self::Block { tensor, .. }
            | Self::NotInFile { tensor }
            | Self::NotInSource { tensor }
            | Self::ShapeInSource { tensor, .. }
            | Self::Decode { tensor, .. }
            | Self::SourceNotFinite { tensor }
            | Self::Far { tensor, .. } => Some(tensor),
        }
    }
}
