//! Refusals, which name the tensor, what was found, what is accepted and what to do.

/// Why weights that the checkpoint stores quantized cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizedError {
    /// There is none.
    #[error(
        "tensor {tensor} in {shard} is {dtype} but the checkpoint has no scale for it: none of {}; download the missing \
         files, or dequantize the checkpoint first",
        looked_for.join(", ")
    )]
    Missing {
        /// The weight.
        tensor: String,
        /// Its file.
        shard: String,
        /// Its type.
        dtype: String,
        /// Names that would do.
        looked_for: Vec<String>,
    },
    /// There are two.
    #[error("tensor {tensor} has several scales: {}; remove all but the one that belongs to it", names.join(", "))]
    Several {
        /// The weight.
        tensor: String,
        /// The scales.
        names: Vec<String>,
    },
    /// It does not fit the weight.
    #[error(
        "scale {scale} in {shard} has shape {found:?}, which does not fit its weight of shape {shape:?}; accepted are \
         {accepted}, or blocks of the size that config.json gives as quantization_config.weight_block_size"
    )]
    Shape {
        /// The scale.
        scale: String,
        /// Its file.
        shard: String,
        /// Its shape.
        found: Vec<usize>,
        /// The weight's shape.
        shape: Vec<usize>,
        /// Shapes that would fit.
        accepted: Box<str>,
    },
    /// It is of another type than scales are.
    #[error(
        "scale {scale} in {shard} has dtype {dtype}, accepted are F32, F16, BF16, F64, F8_E8M0, and U8 for the \
         exponents of F8_E8M0; dequantize the checkpoint first"
    )]
    Dtype {
        /// The scale.
        scale: String,
        /// Its file.
        shard: String,
        /// Its type.
        dtype: String,
    },
    /// Several values are packed into one element, or have offsets or tables of their own.
    #[error(
        "tensor {tensor} in {shard} ({dtype}) holds weights of {format}, which cannot be converted; take the unquantized \
         checkpoint, or dequantize this one first; quantized weights can be F8_E4M3 and F8_E5M2 with scales"
    )]
    Packed {
        /// Its name.
        tensor: String,
        /// Its file.
        shard: String,
        /// Its type.
        dtype: String,
        /// Who stores weights so.
        format: &'static str,
    },
}
