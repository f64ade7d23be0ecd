//! Why values or blocks are refused.

use hf2q_gguf::TensorType;

/// Why [`quantize`](crate::quantize) or [`dequantize`](crate::dequantize) refused its input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// There is no encoder for the type.
    #[error("cannot encode {ty}; types that can be encoded: {accepted}", accepted = names(crate::encodable()))]
    EncodeUnsupported {
        /// The type asked for.
        ty: TensorType,
    },
    /// There is no decoder to `f32` for the type.
    #[error("cannot decode {ty} to f32; types that can be decoded: {accepted}", accepted = names(decodable()))]
    DecodeUnsupported {
        /// The type asked for.
        ty: TensorType,
    },
    /// The number of values is no multiple of the block.
    #[error(
        "{len} values are no whole number of {ty} blocks of {block}; pick a type whose block divides the row"
    )]
    RaggedValues {
        /// The type asked for.
        ty: TensorType,
        /// Values given.
        len: usize,
        /// Values of one block.
        block: usize,
    },
    /// The number of bytes is no multiple of the block.
    #[error(
        "{len} bytes are no whole number of {ty} blocks of {block} bytes; the data is cut short or not {ty}"
    )]
    RaggedBytes {
        /// The type asked for.
        ty: TensorType,
        /// Bytes given.
        len: usize,
        /// Bytes of one block.
        block: usize,
    },
    /// The output of a decoder has another length than the blocks hold values.
    #[error("the {ty} blocks hold {expected} values, the output has room for {found}; they must be equal")]
    OutputLength {
        /// The type asked for.
        ty: TensorType,
        /// Values in the blocks.
        expected: usize,
        /// Length of the output.
        found: usize,
    },
    /// A value to encode is NaN or infinite.
    #[error("value {index} is {value}; weights must be finite, the checkpoint is damaged")]
    NotFinite {
        /// Position among the values given.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A value is finite but its encoding would be infinite.
    #[error(
        "value {index} is {value}, beyond the range of {ty} (up to {limit:e}); pick a type with a wider range"
    )]
    TooLarge {
        /// The type asked for.
        ty: TensorType,
        /// Position among the values given.
        index: usize,
        /// The value.
        value: f32,
        /// Magnitudes from here on are refused.
        limit: f32,
    },
    /// Values are finite but the scale that encodes their block is not.
    #[error(
        "value {index} is {value}: the scale of its block is beyond the range of {ty}; pick a type with a wider range"
    )]
    ScaleOverflow {
        /// The type asked for.
        ty: TensorType,
        /// Position among the values given of the largest magnitude of the block.
        index: usize,
        /// That value.
        value: f32,
    },
    /// The values are no whole number of rows.
    #[error("{len} values are no whole number of rows of {columns}, the number of importance weights")]
    RaggedRows {
        /// Values given.
        len: usize,
        /// Weights given.
        columns: usize,
    },
    /// A weight is negative, NaN or infinite.
    #[error("importance weight {index} is {value}; weights must be finite and not negative")]
    BadWeight {
        /// The column.
        index: usize,
        /// The weight.
        value: f32,
    },
}

impl QuantError {
    /// The same error where the values seen lie behind others.
    pub(crate) fn behind(mut self, values: usize) -> Self {
        if let Self::NotFinite { index, .. }
        | Self::TooLarge { index, .. }
        | Self::ScaleOverflow { index, .. } = &mut self
        {
            *index += values;
        }
        self
    }
}

fn decodable() -> impl Iterator<Item = TensorType> {
    TensorType::all().filter(|&ty| crate::can_decode(ty))
}

fn names(types: impl Iterator<Item = TensorType>) -> String {
    types.map(TensorType::name).collect::<Vec<_>>().join(", ")
}
