//! Rows of a checkpoint tensor as f32, after its transform.

use half::{bf16, f16};
use hf2q_arch::{Source, TensorRow, Transform};
use safetensors::Dtype;

use crate::checkpoint::CheckpointTensor;
use crate::error::ConvertError;

/// Where the rows of one GGUF tensor come from.
#[derive(Debug)]
pub(crate) enum Rows<'a> {
    /// Matrices of the checkpoint, one after the other.
    Parts {
        /// All of one shape.
        parts: Vec<&'a CheckpointTensor>,
        /// Rows of each part.
        rows: usize,
        /// Elements of a row.
        cols: usize,
        /// What is done to them.
        transform: Transform,
    },
    /// Values that the configuration alone determines.
    Computed(Vec<f32>),
}

impl<'a> Rows<'a> {
    /// Resolves a row of the tensor map. `find` looks a canonical HuggingFace name up; `Ok(None)` means that an
    /// optional tensor is absent. Absent required names are added to `missing`.
    pub(crate) fn resolve(
        row: &TensorRow,
        find: impl Fn(&str) -> Option<&'a CheckpointTensor>,
        missing: &mut Vec<String>,
    ) -> Result<Option<Self>, ConvertError> {
        let (names, transform): (Vec<&String>, Transform) = match &row.source {
            Source::Computed(values) => return Ok(Some(Self::Computed(values.clone()))),
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
        let parts: Vec<&CheckpointTensor> = found.into_iter().flatten().collect();
        let mut shape: Vec<usize> = row.shape.iter().rev().copied().collect();
        if matches!(row.source, Source::Stack { .. }) {
            shape.remove(0);
        }
        for (part, name) in parts.iter().zip(&names) {
            check(name, part, &shape)?;
        }
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().rev().skip(1).product();
        Ok(Some(Self::Parts { parts, rows, cols, transform }))
    }

    /// Rows in all.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Parts { parts, rows, .. } => parts.len() * rows,
            Self::Computed(_) => 1,
        }
    }

    /// Elements of a row.
    pub(crate) fn cols(&self) -> usize {
        match self {
            Self::Parts { cols, .. } => *cols,
            Self::Computed(values) => values.len(),
        }
    }

    /// Appends the values of some rows.
    pub(crate) fn read(&self, range: std::ops::Range<usize>, out: &mut Vec<f32>) {
        match self {
            Self::Computed(values) => out.extend_from_slice(values),
            Self::Parts { parts, rows, cols, transform } => {
                for r in range {
                    let row = source_row(r % rows, transform);
                    append(parts[r / rows], row * cols..(row + 1) * cols, out);
                    if matches!(transform, Transform::AddOne) {
                        let start = out.len() - cols;
                        out[start..].iter_mut().for_each(|x| *x += 1.0);
                    }
                }
            }
        }
    }
}

/// The row of the checkpoint that becomes row `r`. HuggingFace keeps the two halves of rotated pairs apart, llama.cpp's
/// `llama` architecture keeps pairs side by side.
fn source_row(r: usize, transform: &Transform) -> usize {
    match *transform {
        Transform::PermuteRope { head_dim, .. } => {
            let (head, at) = (r / head_dim, r % head_dim);
            head * head_dim + (at % 2) * (head_dim / 2) + at / 2
        }
        _ => r,
    }
}

fn check(name: &str, part: &CheckpointTensor, shape: &[usize]) -> Result<(), ConvertError> {
    if !matches!(part.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64) {
        let (tensor, shard, dtype) = (name.to_owned(), part.shard.clone(), format!("{:?}", part.dtype));
        return Err(ConvertError::Dtype { tensor, shard, dtype });
    }
    let scalar = |s: &[usize]| s.is_empty() || s == [1];
    if part.shape != shape && !(scalar(&part.shape) && scalar(shape)) {
        let (found, expected) = (part.shape.clone(), shape.to_vec());
        return Err(ConvertError::Shape {
            tensor: name.to_owned(),
            shard: part.shard.clone(),
            found,
            expected,
        });
    }
    Ok(())
}

fn append(tensor: &CheckpointTensor, elements: std::ops::Range<usize>, out: &mut Vec<f32>) {
    let bytes = |size: usize| &tensor.bytes[elements.start * size..elements.end * size];
    match tensor.dtype {
        Dtype::F32 => out.extend(bytes(4).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        Dtype::F16 => out.extend(bytes(2).as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32())),
        Dtype::F64 => out.extend(bytes(8).as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32)),
        // `check` lets nothing else through.
        _ => out.extend(bytes(2).as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32())),
    }
}
