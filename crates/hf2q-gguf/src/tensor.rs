//! Tensors: names, types, shapes and sizes.

use crate::error::GgufError;
use crate::types::TensorType;

/// Most dimensions of a tensor.
pub(crate) const MAX_DIMENSIONS: usize = 4;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name, 1 to 63 bytes.
    pub name: String,
    /// How its elements are stored.
    pub ty: TensorType,
    /// Dimensions in GGUF order: `shape[0]` is the contiguous one.
    pub shape: Vec<u64>,
}

/// A tensor of an opened file. All of it lies within the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name, unique in the model.
    pub name: String,
    /// How its elements are stored.
    pub ty: TensorType,
    /// Dimensions in GGUF order: `shape[0]` is the contiguous one (columns). 1 to 4, none is zero.
    pub shape: Vec<u64>,
    /// Where its data begins, in bytes from the start of its file.
    pub offset: u64,
    /// Size of its data in bytes.
    pub bytes: u64,
    /// Which file of [`crate::Gguf::paths`] holds it.
    pub file: usize,
}

impl TensorInfo {
    /// Elements of a row: `shape[0]`.
    pub fn cols(&self) -> usize {
        self.shape[0] as usize
    }

    /// Rows: the product of all dimensions but the first.
    pub fn rows(&self) -> usize {
        self.shape[1..].iter().product::<u64>() as usize
    }

    /// Elements in all.
    pub fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    /// Name, type and shape: what a writer needs to know of it.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec { name: self.name.clone(), ty: self.ty, shape: self.shape.clone() }
    }
}

impl TensorSpec {
    /// Size of the data in bytes.
    ///
    /// # Errors
    /// The shape is impossible: no or too many dimensions, a zero among them, rows that are no multiple of the
    /// type's block, or a size beyond 63 bits.
    pub fn bytes(&self) -> Result<u64, GgufError> {
        size(&self.name, self.ty, &self.shape)
    }
}

/// Bytes of a tensor, with every product checked. Its number of elements also fits `usize`.
pub(crate) fn size(name: &str, ty: TensorType, shape: &[u64]) -> Result<u64, GgufError> {
    let tensor = || name.to_owned();
    if shape.is_empty() || shape.len() > MAX_DIMENSIONS {
        return Err(GgufError::Dimensions { tensor: tensor(), found: shape.len() as u64 });
    }
    if shape.contains(&0) {
        return Err(GgufError::ZeroDimension { tensor: tensor(), shape: shape.to_vec() });
    }
    let overflow = || GgufError::SizeOverflow { tensor: tensor(), shape: shape.to_vec() };
    let fits = |n: u64| isize::try_from(n).is_ok();
    let elements = shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d)).filter(|n| fits(*n));
    let elements = elements.ok_or_else(overflow)?;
    let block = ty.block_len();
    if !shape[0].is_multiple_of(block as u64) {
        return Err(GgufError::RowLength { tensor: tensor(), ty, cols: shape[0], block });
    }
    let bytes = (elements / block as u64).checked_mul(ty.block_bytes() as u64);
    bytes.filter(|n| fits(*n)).ok_or_else(overflow)
}

/// Names of type ids that exist or existed but are not supported; for messages only.
pub(crate) fn foreign_type_name(id: u32) -> &'static str {
    match id {
        4 => " (q4_2, withdrawn)",
        5 => " (q4_3, withdrawn)",
        9 => " (q8_1, for intermediate values)",
        15 => " (q8_k, for intermediate values)",
        31..=33 => " (repacked q4_0, withdrawn)",
        36..=38 => " (repacked iq4_nl, withdrawn)",
        40 => " (nvfp4)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_shapes() {
        assert_eq!(size("t", TensorType::F32, &[3, 5]).unwrap(), 60);
        assert_eq!(size("t", TensorType::Q4_0, &[64, 2, 3]).unwrap(), 2 * 6 * 18);
        assert!(matches!(size("t", TensorType::F32, &[]), Err(GgufError::Dimensions { found: 0, .. })));
        assert!(matches!(size("t", TensorType::F32, &[1; 5]), Err(GgufError::Dimensions { found: 5, .. })));
        assert!(matches!(size("t", TensorType::F32, &[4, 0]), Err(GgufError::ZeroDimension { .. })));
        assert!(matches!(size("t", TensorType::Q4_0, &[33]), Err(GgufError::RowLength { block: 32, .. })));
    }

    #[test]
    fn products_do_not_wrap() {
        // Elements wrap 64 bits, elements fit but bytes do not, and both only just fit.
        for shape in [&[1 << 32, 1 << 32][..], &[1 << 22, (1 << 42) + 1], &[1 << 61]] {
            let found = size("big", TensorType::F32, shape);
            assert!(matches!(found, Err(GgufError::SizeOverflow { .. })), "{shape:?}: {found:?}");
        }
        assert_eq!(size("t", TensorType::F32, &[1 << 60]).unwrap(), 1 << 62);
    }
}
