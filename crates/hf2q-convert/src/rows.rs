//! Rows of a tensor as f32, whatever they are stored as.

use std::ops::Range;

use hf2q_arch::{Class, Source, TensorRow, Transform};
use hf2q_gguf::{Bytes, TensorType};
use hf2q_quant::QuantError;
use hf2q_quant::float8::Float8;
use safetensors::Dtype;

use crate::checkpoint::CheckpointTensor;
use crate::error::ConvertError;
use crate::scales::{self, Quantization, Scale};
use crate::tokens;

/// Where the rows of one tensor come from: equal matrices, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    parts: Vec<Part>,
    /// Rows of each part.
    rows: usize,
    /// Rows of each matrix of a stack: of an expert, or of all.
    matrix: usize,
    /// Elements of a row.
    cols: usize,
    transform: Transform,
}

/// What is stored together: a matrix or a stack of them.
#[derive(Clone, Debug)]
struct Part {
    elements: Elements,
    bytes: Bytes,
    /// What the elements are to be multiplied by.
    scale: Option<Scale>,
}

/// The tensors of a checkpoint, found by their canonical names.
pub(crate) struct Finder<'a> {
    pub(crate) find: &'a dyn Fn(&str) -> Option<&'a CheckpointTensor>,
    pub(crate) quantization: &'a Quantization,
    /// Tokens of the model.
    pub(crate) vocabulary: usize,
    /// Required tensors that are not there.
    pub(crate) missing: Vec<String>,
    /// Scales that belong to tensors that are.
    pub(crate) scales: Vec<String>,
}

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    Gguf(TensorType),
    F64,
    Float8(Float8),
}

impl Elements {
    fn of_dtype(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::F32 => Self::Gguf(TensorType::F32),
            Dtype::F16 => Self::Gguf(TensorType::F16),
            Dtype::BF16 => Self::Gguf(TensorType::Bf16),
            Dtype::F64 => Self::F64,
            other => Self::Float8(scales::float8(other)?),
        })
    }

    /// Bytes of `n` elements, a multiple of the block.
    fn bytes(self, n: usize) -> usize {
        match self {
            Self::Gguf(ty) => n / ty.block_len() * ty.block_bytes(),
            Self::F64 => n * size_of::<f64>(),
            Self::Float8(_) => n,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gguf(ty) => ty.name(),
            Self::F64 => "f64",
            Self::Float8(Float8::E4M3) => "f8_e4m3",
            Self::Float8(Float8::E5M2) => "f8_e5m2",
            Self::Float8(Float8::E8M0) => "f8_e8m0",
        }
    }

    fn decode(self, bytes: &[u8], out: &mut Vec<f32>) -> Result<(), QuantError> {
        let start = out.len();
        match self {
            Self::F64 => out.extend(bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32)),
            Self::Float8(format) => {
                out.resize(start + bytes.len(), 0.0);
                format.decode(bytes, &mut out[start..]);
            }
            // Numbers of tokens are below 2^24.
            Self::Gguf(TensorType::I32) => {
                out.extend(bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b) as f32));
            }
            Self::Gguf(ty) => {
                out.resize(start + bytes.len() / ty.block_bytes() * ty.block_len(), 0.0);
                hf2q_quant::dequantize(ty, bytes, &mut out[start..])?;
            }
        }
        Ok(())
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
            parts: parts.map(|bytes| Part { elements, bytes, scale: None }).collect(),
            rows,
            matrix: rows,
            cols,
            transform: Transform::None,
        }
    }

    /// One row of known values.
    fn computed(values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::blocks(TensorType::F32, &Bytes::from_vec(bytes), &[values.len() as u64])
    }

    /// Resolves a row of the tensor map; `Ok(None)` means that an optional tensor is absent, or that a required one is,
    /// which the finder remembers.
    pub(crate) fn resolve(row: &TensorRow, finder: &mut Finder<'_>) -> Result<Option<Self>, ConvertError> {
        let (names, transform): (Vec<&String>, Transform) = match &row.source {
            Source::Computed(values) => return Ok(Some(Self::computed(values))),
            Source::Hf { name, transform } => (vec![name], transform.clone()),
            Source::Stack { names } => (names.iter().collect(), Transform::None),
        };
        let find = finder.find;
        if let (Class::Tokens, Some(tensor)) = (row.class, find(names[0])) {
            let bytes = tokens::ordering(names[0], tensor, row.shape[0])?;
            let shape = [row.shape[0] as u64];
            return Ok(Some(Self::blocks(TensorType::I32, &Bytes::from_vec(bytes), &shape)));
        }
        if let (Class::DraftTokens, Some(tensor)) = (row.class, find(names[0])) {
            let bytes = tokens::of_logits(names[0], tensor, (row.shape[0], finder.vocabulary))?;
            let shape = [row.shape[0] as u64];
            return Ok(Some(Self::blocks(TensorType::I64, &Bytes::from_vec(bytes), &shape)));
        }
        let found: Vec<Option<&CheckpointTensor>> = names.iter().map(|n| (finder.find)(n)).collect();
        if found.iter().any(Option::is_none) {
            if !row.optional {
                let absent = names.iter().zip(&found).filter(|(_, f)| f.is_none());
                finder.missing.extend(absent.map(|(n, _)| n.to_string()));
            }
            return Ok(None);
        }
        let mut shape: Vec<usize> = row.shape.iter().rev().copied().collect();
        if matches!(row.source, Source::Stack { .. }) {
            shape.remove(0);
        }
        let parts = found.into_iter().flatten().zip(&names).map(|(t, name)| finder.part(name, t, &shape));
        Ok(Some(Self {
            parts: parts.collect::<Result<_, _>>()?,
            rows: shape.iter().rev().skip(1).product(),
            matrix: shape.iter().rev().nth(1).copied().unwrap_or(1),
            cols: shape.last().copied().unwrap_or(1),
            transform,
        }))
    }

    /// Rows in all.
    pub(crate) fn count(&self) -> usize {
        self.parts.len() * self.rows
    }

    /// Matrices of the stack.
    pub(crate) fn matrices(&self) -> usize {
        self.count() / self.matrix.max(1)
    }

    /// Rows of a matrix.
    pub(crate) fn matrix_rows(&self) -> usize {
        self.matrix
    }

    /// Rows to work on at a time so that they hold about `values` values. Rows that are read in another order than they are
    /// stored in stay within heads, so that those of a range are stored in that range.
    pub(crate) fn per_task(&self, values: usize) -> usize {
        let rows = (values / self.cols.max(1)).max(1);
        match self.transform {
            Transform::PermuteRope { head_dim, .. } => rows.next_multiple_of(head_dim),
            _ => rows,
        }
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
        match self.parts.first() {
            Some(Part { elements, scale: None, .. }) => elements.name().to_owned(),
            Some(Part { elements, scale: Some(_), .. }) => format!("{} + scales", elements.name()),
            None => "nothing".to_owned(),
        }
    }

    /// The bytes of some rows of one matrix, if they are what a tensor of type `ty` holds.
    pub(crate) fn raw(&self, ty: TensorType, range: Range<usize>) -> Option<&[u8]> {
        let part = self.part_of(range.start);
        let as_is = part.scale.is_none() && part.elements == Elements::Gguf(ty);
        (as_is && self.transform == Transform::None).then(|| &part.bytes[self.byte_range(part, range)])
    }

    /// Appends the values of some rows of one matrix.
    ///
    /// # Errors
    /// The type of the source cannot be decoded.
    pub(crate) fn read(&self, range: Range<usize>, out: &mut Vec<f32>) -> Result<(), QuantError> {
        let part = self.part_of(range.start);
        let start = out.len();
        match self.transform {
            Transform::PermuteRope { head_dim, .. } => {
                range.into_iter().try_for_each(|r| self.read_row(part, unpaired_row(r, head_dim), out))?;
            }
            _ if part.scale.is_some() => range.into_iter().try_for_each(|r| self.read_row(part, r, out))?,
            _ => part.elements.decode(&part.bytes[self.byte_range(part, range)], out)?,
        }
        if self.transform == Transform::AddOne {
            out[start..].iter_mut().for_each(|x| *x += 1.0);
        }
        Ok(())
    }

    fn read_row(&self, part: &Part, row: usize, out: &mut Vec<f32>) -> Result<(), QuantError> {
        let start = out.len();
        part.elements.decode(&part.bytes[self.byte_range(part, row..row + 1)], out)?;
        if let Some(scale) = &part.scale {
            scale.apply(row % self.rows, &mut out[start..]);
        }
        Ok(())
    }

    fn part_of(&self, row: usize) -> &Part {
        &self.parts[row / self.rows.max(1)]
    }

    /// Gives the memory of some rows of one matrix back, and of what was read shortly before: they are not needed again.
    pub(crate) fn release(&self, range: Range<usize>) {
        let part = self.part_of(range.start);
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

impl Finder<'_> {
    fn part(&mut self, name: &str, tensor: &CheckpointTensor, shape: &[usize]) -> Result<Part, ConvertError> {
        let Some(elements) = Elements::of_dtype(tensor.dtype) else {
            let (tensor, shard, dtype) =
                (name.to_owned(), tensor.shard.clone(), format!("{:?}", tensor.dtype));
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
        let scale = Scale::find(name, tensor, self.quantization, self.find)?;
        self.scales.extend(scale.as_ref().map(|s| s.name().to_owned()));
        Ok(Part { elements, bytes: tensor.bytes.clone(), scale })
    }
}
