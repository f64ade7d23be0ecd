//! Where tensors lie in the file: aligned, within it, and not over each other.

use crate::error::GgufError;
use crate::tensor::TensorInfo;

/// Turns offsets that count from the data section into offsets from the start of the file, and checks them all.
/// `header_bytes` is the length of everything before the data section, without padding; `len` that of the file.
pub(crate) fn place(
    tensors: &mut [TensorInfo],
    header_bytes: u64,
    alignment: u64,
    len: u64,
) -> Result<(), GgufError> {
    let start = header_bytes.checked_next_multiple_of(alignment);
    let mut expected = 0;
    for t in tensors.iter_mut() {
        if !t.offset.is_multiple_of(alignment) {
            return Err(GgufError::Misaligned { tensor: t.name.clone(), offset: t.offset, alignment });
        }
        let begin = start.and_then(|start| start.checked_add(t.offset));
        let end = begin.and_then(|begin| begin.checked_add(t.bytes));
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(GgufError::OffsetOverflow { tensor: t.name.clone(), offset: t.offset });
        };
        t.offset = begin;
        expected = expected.max(end);
    }
    if let Some(t) = tensors.iter().find(|t| t.offset + t.bytes > len) {
        let end = t.offset + t.bytes;
        return Err(GgufError::MissingData { tensor: t.name.clone(), end, expected, len });
    }
    no_overlap(tensors)
}

fn no_overlap(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut sorted: Vec<&TensorInfo> = tensors.iter().collect();
    sorted.sort_by_key(|t| t.offset);
    let found = sorted.windows(2).find(|pair| pair[0].offset + pair[0].bytes > pair[1].offset);
    match found {
        Some(pair) => Err(GgufError::Overlap { first: pair[0].name.clone(), second: pair[1].name.clone() }),
        None => Ok(()),
    }
}
