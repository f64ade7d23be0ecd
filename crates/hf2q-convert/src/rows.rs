//! Rows of a tensor as f32, whatever they are stored as.

use std::ops::Range;

use hf2q_arch::{Source, TensorRow, Transform};
use hf2q_gguf::{Bytes, TensorType};
use safetensors::Dtype;

use crate::checkpoint::CheckpointTensor;
use crate::error::ConvertError;

/// Where the rows of one tensor come from: equal matrices, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    parts: Vec<Part>,
    /// Rows of each part.
    rows: usize,
    /// Elements of a row.
    cols: usize,
    transform: Transform,
}

/// One matrix.
#[derive(Clone, Debug)]
struct Part {
    elements: Elements,
    bytes: Bytes,
}

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    Gguf(TensorType),
    F64,
}

impl Elements {
    fn of_dtype(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::F32 => Self::Gguf(TensorType::F32),
            Dtype::F16 => Self::Gguf(TensorType::F16),
            Dtype::BF16 => Self::Gguf(TensorType::Bf16),
            Dtype::F64 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of `n` elements, a multiple of the block.
    fn bytes(self, n: usize) -> usize {
        match self {
            Self::Gguf(ty) => n / ty.block_len() * ty.block_bytes(),
            Self::F64 => n * size_of::<f64>(),
        }
    }
}

impl Rows {
    /// Rows of a tensor of a GGUF file; `shape` in its order, columns first.
    pub(crate) fn blocks(ty: TensorType, bytes: &Bytes, shape: &[u64]) -> Self {
        let elements = if ty == TensorType::F64 { Elements::F64 } else { Elements::Gguf(ty) };
        let size = |d: Option<&u64>| d.map_or(1, |&n| n as usize);
        let (cols, rows) = (size(shape.first()), size(shape.get(1)));
        let part = elements.bytes(cols) * rows;
        let parts = (0..bytes.len() / part.max(1)).filter_map(|i| bytes.slice(i * part..(i + 1) * part));
        Self {
            parts: parts.map(|bytes| Part { elements, bytes }).collect(),
            rows,
            cols,
            transform: Transform::None,
        }
    }

    /// One row of known values.
    fn computed(values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::blocks(TensorType::F32, &Bytes::from_vec(bytes), &[values.len() as u64])
    }

    /// Resolves a row of the tensor map. `find` looks a canonical HuggingFace name up; `Ok(None)` means that an
    /// optional tensor is absent. Absent required names are added to `missing`.
    pub(crate) fn resolve<'a>(
        row: &TensorRow,
        find: impl Fn(&str) -> Option<&'a CheckpointTensor>,
        missing: &mut Vec<String>,
    ) -> Result<Option<Self>, ConvertError> {
        let (names, transform): (Vec<&String>, Transform) = match &row.source {
            Source::Computed(values) => return Ok(Some(Self::computed(values))),
            Source::Hf { name, transform } => (vec![name], transform.clone()),
            Source::Stack { names } => (names.iter().collect(), Transform::None),
        };
        let found: Vec<Option<&CheckpointTensor>> = names.iter().map(|n| find(n)).collect();
        if found.iter().any(Option::is_none) {
            if !row.optional {
                let absent = names.iter().zip(&found).filter(|(_, f)| f.is_none());
                missing.extend(absent.map(|(n, _)| n.to_string()));
            }
            return Ok(None);
        }
        let mut shape: Vec<usize> = row.shape.iter().rev().copied().collect();
        if matches!(row.source, Source::Stack { .. }) {
            shape.remove(0);
        }
        let parts = found.into_iter().flatten().zip(&names).map(|(t, name)| part(name, t, &shape));
        Ok(Some(Self {
            parts: parts.collect::<Result<_, _>>()?,
            rows: shape.iter().rev().skip(1).product(),
            cols: shape.last().copied().unwrap_or(1),
            transform,
        }))
    }

    /// Rows in all.
    pub(crate) fn count(&self) -> usize {
        self.parts.len() * self.rows
    }

    /// Matrices.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Rows of a matrix.
    pub(crate) fn per_part(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes that hold some rows in the source.
    pub(crate) fn source_bytes(&self, rows: usize) -> u64 {
        self.parts.first().map_or(0, |p| p.elements.bytes(self.cols) as u64 * rows as u64)
    }

    /// The unquantized type that holds the source's values without loss.
    pub(crate) fn float_type(&self) -> TensorType {
        match self.parts.first().map(|p| p.elements) {
            Some(Elements::Gguf(ty @ (TensorType::F16 | TensorType::Bf16))) => ty,
            _ => TensorType::F32,
        }
    }

    /// Type of the source, for people.
    pub(crate) fn describe(&self) -> String {
        match self.parts.first().map(|p| p.elements) {
            Some(Elements::Gguf(ty)) => ty.name().to_owned(),
            Some(Elements::F64) => "f64".to_owned(),
            None => "nothing".to_owned(),
        }
    }

    /// The bytes of some rows of one part, if they are what a tensor of type `ty` holds.
    pub(crate) fn raw(&self, ty: TensorType, range: Range<usize>) -> Option<&[u8]> {
        let part = &self.parts[range.start / self.rows.max(1)];
        let as_is = self.transform == Transform::None && part.elements == Elements::Gguf(ty);
        as_is.then(|| &part.bytes[self.byte_range(part, range)])
    }

    /// Appends the values of some rows of one part.
    ///
    /// # Errors
    /// The type of the source cannot be decoded.
    pub(crate) fn read(&self, range: Range<usize>, out: &mut Vec<f32>) -> Result<(), hf2q_quant::QuantError> {
        let part = &self.parts[range.start / self.rows.max(1)];
        match self.transform {
            Transform::None => decode(part.elements, &part.bytes[self.byte_range(part, range)], out),
            Transform::AddOne => {
                let start = out.len();
                decode(part.elements, &part.bytes[self.byte_range(part, range)], out)?;
                out[start..].iter_mut().for_each(|x| *x += 1.0);
                Ok(())
            }
            Transform::PermuteRope { head_dim, .. } => range.into_iter().try_for_each(|r| {
                let r = unpaired_row(r, head_dim);
                decode(part.elements, &part.bytes[self.byte_range(part, r..r + 1)], out)
            }),
        }
    }

    /// Gives the memory of some rows of one part back: they are not needed again soon.
    pub(crate) fn release(&self, range: Range<usize>) {
        let part = &self.parts[range.start / self.rows.max(1)];
        if let Some(bytes) = part.bytes.slice(self.byte_range(part, range)) {
            bytes.release();
        }
    }

    /// Where rows `range` lie in the part that they are of.
    fn byte_range(&self, part: &Part, range: Range<usize>) -> Range<usize> {
        let start = range.start % self.rows.max(1);
        let row = part.elements.bytes(self.cols);
        start * row..(start + range.len()) * row
    }
}

/// The row of the checkpoint that becomes row `r`. HuggingFace keeps the two halves of rotated pairs apart, llama.cpp's
/// `llama` architecture keeps pairs side by side.
fn unpaired_row(r: usize, head_dim: usize) -> usize {
    let (head, at) = (r / head_dim, r % head_dim);
    head * head_dim + (at % 2) * (head_dim / 2) + at / 2
}

fn part(name: &str, tensor: &CheckpointTensor, shape: &[usize]) -> Result<Part, ConvertError> {
    let Some(elements) = Elements::of_dtype(tensor.dtype) else {
        let (tensor, shard, dtype) = (name.to_owned(), tensor.shard.clone(), format!("{:?}", tensor.dtype));
        return Err(ConvertError::Dtype { tensor, shard, dtype });
    };
    let scalar = |s: &[usize]| s.is_empty() || s == [1];
    if tensor.shape != shape && !(scalar(&tensor.shape) && scalar(shape)) {
        let (found, expected) = (tensor.shape.clone(), shape.to_vec());
        return Err(ConvertError::Shape {
            tensor: name.to_owned(),
            shard: tensor.shard.clone(),
            found,
            expected,
        });
    }
    Ok(Part { elements, bytes: tensor.bytes.clone() })
}

fn decode(elements: Elements, bytes: &[u8], out: &mut Vec<f32>) -> Result<(), hf2q_quant::QuantError> {
    match elements {
        Elements::F64 => out.extend(bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32)),
        Elements::Gguf(ty) => {
            let start = out.len();
            out.resize(start + bytes.len() / ty.block_bytes() * ty.block_len(), 0.0);
            hf2q_quant::dequantize(ty, bytes, &mut out[start..])?;
        }
    }
    Ok(())
}
