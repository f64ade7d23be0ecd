//! Lists of tokens that a checkpoint stores as integers.

use safetensors::Dtype;

use crate::checkpoint::CheckpointTensor;
use crate::error::ConvertError;

/// The tokens as little-endian i32.
///
/// # Errors
/// Other elements than integers, another number of them than `vocabulary`, or one that is no token.
pub(crate) fn bytes(
    name: &str,
    tensor: &CheckpointTensor,
    vocabulary: usize,
) -> Result<Vec<u8>, ConvertError> {
    let (name, shard) = (name.to_owned(), tensor.shard.clone());
    if tensor.shape != [vocabulary] {
        let (found, expected) = (tensor.shape.clone(), vec![vocabulary]);
        return Err(ConvertError::Shape { tensor: name, shard, found, expected });
    }
    let tokens: Vec<i64> = match tensor.dtype {
        Dtype::I64 => tensor.bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect(),
        Dtype::I32 => tensor.bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect(),
        other => return Err(ConvertError::NotTokens { tensor: name, shard, dtype: format!("{other:?}") }),
    };
    let mut out = Vec::with_capacity(4 * tokens.len());
    for (index, found) in tokens.into_iter().enumerate() {
        let token = i32::try_from(found).ok().filter(|&t| t >= 0 && (t as usize) < vocabulary);
        let Some(token) = token else {
            return Err(ConvertError::NoToken { tensor: name, shard, index, found, vocabulary });
        };
        out.extend(token.to_le_bytes());
    }
    Ok(out)
}
