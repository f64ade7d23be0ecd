//! Lists of tokens that a checkpoint stores as integers.

use std::collections::HashSet;

use safetensors::Dtype;

use crate::checkpoint::CheckpointTensor;
use crate::error::ConvertError;

/// All tokens of a vocabulary, in some order, as little-endian i32.
///
/// # Errors
/// Other elements than integers, another number of them than `vocabulary`, or one that is no token.
pub(crate) fn ordering(
    name: &str,
    tensor: &CheckpointTensor,
    vocabulary: usize,
) -> Result<Vec<u8>, ConvertError> {
    let mut out = Vec::with_capacity(4 * vocabulary);
    for (index, found) in integers(name, tensor, vocabulary)?.into_iter().enumerate() {
        let token = i32::try_from(found).ok().filter(|&t| t >= 0 && (t as usize) < vocabulary);
        let token = token.ok_or_else(|| no_token((name, tensor), (index, found), vocabulary))?;
        out.extend(token.to_le_bytes());
    }
    Ok(out)
}

/// The token of each of `len` logits, as little-endian i64. The checkpoint has how much larger it is than its place.
///
/// # Errors
/// Other elements than integers, another number of them, one that is no token of `vocabulary`, or one twice.
pub(crate) fn of_logits(
    name: &str,
    tensor: &CheckpointTensor,
    (len, vocabulary): (usize, usize),
) -> Result<Vec<u8>, ConvertError> {
    let mut out = Vec::with_capacity(8 * len);
    let mut seen = HashSet::new();
    for (index, found) in integers(name, tensor, len)?.into_iter().enumerate() {
        let token = i64::try_from(index).ok().and_then(|i| i.checked_add(found));
        let token = token.filter(|&t| usize::try_from(t).is_ok_and(|t| t < vocabulary));
        let token = token.ok_or_else(|| no_token((name, tensor), (index, found), vocabulary))?;
        if !seen.insert(token) {
            let (tensor, shard) = (name.to_owned(), tensor.shard.clone());
            return Err(ConvertError::TokenTwice { tensor, shard, index, token });
        }
        out.extend(token.to_le_bytes());
    }
    Ok(out)
}

fn no_token(
    (name, tensor): (&str, &CheckpointTensor),
    (index, found): (usize, i64),
    vocabulary: usize,
) -> ConvertError {
    let (tensor, shard) = (name.to_owned(), tensor.shard.clone());
    ConvertError::NoToken { tensor, shard, index, found, vocabulary }
}

fn integers(name: &str, tensor: &CheckpointTensor, len: usize) -> Result<Vec<i64>, ConvertError> {
    let (name, shard) = (name.to_owned(), tensor.shard.clone());
    if tensor.shape != [len] {
        let (found, expected) = (tensor.shape.clone(), vec![len]);
        return Err(ConvertError::Shape { tensor: name, shard, found, expected });
    }
    match tensor.dtype {
        Dtype::I64 => Ok(tensor.bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()),
        Dtype::I32 => Ok(tensor.bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect()),
        other => Err(ConvertError::NotTokens { tensor: name, shard, dtype: format!("{other:?}") }),
    }
}
