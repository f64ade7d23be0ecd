//! Scales of weights that are stored as floats of 8 bits: which tensor holds them, and how it is laid out.
//!
//! A weight is its code's value times a scale. Whatever the name says (`weight_scale_inv` is the inverse of what the
//! quantizer multiplied by), every tool that writes such checkpoints stores the factor to multiply by. A scale is
//! for the whole tensor, for each row, or for blocks, and its shape tells which.

mod error;
mod others;
mod settings;
#[cfg(test)]
mod tests;

use hf2q_gguf::Bytes;
use hf2q_quant::float8::Float8;
use hf2q_quant::half::{bf16_to_f32, f16_to_f32};
use safetensors::Dtype;

pub use self::error::QuantizedError;
pub(crate) use self::others::{is_activation_scale, refuse_packed};
pub(crate) use self::settings::Quantization;
use crate::checkpoint::CheckpointTensor;

/// What follows a weight's name without `weight`, in the order they are looked for.
const SUFFIXES: &[&str] = &["weight_scale_inv", "weight_scale", "qscale_weight", "scale_weight", "scale"];

/// What follows the name of a parameter that is a matrix itself, like the experts of a layer in one tensor.
const PLAIN_SUFFIXES: &[&str] = &["_scale_inv", "_scale"];

/// The scale of a weight. Values are read from the file when they are applied.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    name: String,
    elements: Elements,
    bytes: Bytes,
    /// All dimensions of the weight but the last, slowest first.
    rows: Vec<Axis>,
    /// Values of a row that share a scale.
    block: usize,
    /// Scales of a row, side by side.
    per_row: usize,
}

/// A dimension of the weight.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    /// Neighbours that share a scale.
    block: usize,
    /// Scales from one block to the next.
    stride: usize,
}

/// How scales are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    F64,
    F32,
    F16,
    Bf16,
    E8M0,
}

/// The type of weights that need a scale.
pub(crate) fn float8(dtype: Dtype) -> Option<Float8> {
    match dtype {
        Dtype::F8_E4M3 => Some(Float8::E4M3),
        Dtype::F8_E5M2 => Some(Float8::E5M2),
        _ => None,
    }
}

impl Scale {
    /// Looks the scale of a weight up, with `find` as for the weight. `Ok(None)` if the weight needs none: it is no
    /// float of 8 bits, or the configuration says that it was not quantized.
    ///
    /// # Errors
    /// There is none, there are several, or its shape or type does not fit.
    pub(crate) fn find<'a>(
        name: &str,
        weight: &CheckpointTensor,
        quantization: &Quantization,
        find: impl Fn(&str) -> Option<&'a CheckpointTensor>,
    ) -> Result<Option<Self>, QuantizedError> {
        if float8(weight.dtype).is_none() {
            return Ok(None);
        }
        let looked_for = names(name);
        let mut found: Vec<(&String, &CheckpointTensor)> =
            looked_for.iter().filter_map(|n| Some((n, find(n)?))).collect();
        if found.len() > 1 {
            let names = found.iter().map(|(n, _)| n.to_string()).collect();
            return Err(QuantizedError::Several { tensor: name.to_owned(), names });
        }
        if let Some((scale, tensor)) = found.pop() {
            return Self::new(scale, tensor, &weight.shape, quantization).map(Some);
        }
        if quantization.leaves_out(name) {
            return Ok(None);
        }
        let (tensor, shard, dtype) = (name.to_owned(), weight.shard.clone(), format!("{:?}", weight.dtype));
        Err(QuantizedError::Missing { tensor, shard, dtype, looked_for })
    }

    fn new(
        name: &str,
        tensor: &CheckpointTensor,
        weight: &[usize],
        quantization: &Quantization,
    ) -> Result<Self, QuantizedError> {
        let Some(elements) = Elements::of(tensor.dtype) else {
            let (scale, shard, dtype) =
                (name.to_owned(), tensor.shard.clone(), format!("{:?}", tensor.dtype));
            return Err(QuantizedError::Dtype { scale, shard, dtype });
        };
        let Some(mut axes) = layout(weight, &tensor.shape, quantization) else {
            return Err(QuantizedError::Shape {
                scale: name.to_owned(),
                shard: tensor.shard.clone(),
                found: tensor.shape.clone(),
                shape: weight.to_vec(),
                accepted: accepted(weight, quantization).into(),
            });
        };
        let columns = axes.pop().unwrap_or(Axis { size: 1, block: 1, stride: 1 });
        Ok(Self {
            name: name.to_owned(),
            elements,
            bytes: tensor.bytes.clone(),
            rows: axes,
            block: columns.block,
            per_row: columns.size.div_ceil(columns.block),
        })
    }

    /// The name of the tensor.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Multiplies a row's values. Rows are counted over all dimensions of the weight but the last, in the order of
    /// the checkpoint.
    pub(crate) fn apply(&self, row: usize, values: &mut [f32]) {
        let (mut rest, mut first) = (row, 0);
        for axis in self.rows.iter().rev() {
            first += rest % axis.size / axis.block * axis.stride;
            rest /= axis.size;
        }
        for (i, values) in values.chunks_mut(self.block).enumerate() {
            let scale = self.elements.value(&self.bytes, first + i.min(self.per_row - 1));
            values.iter_mut().for_each(|v| *v *= scale);
        }
    }
}

impl Elements {
    fn of(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::F64 => Self::F64,
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::BF16 => Self::Bf16,
            Dtype::F8_E8M0 | Dtype::U8 => Self::E8M0,
            _ => return None,
        })
    }

    fn value(self, bytes: &[u8], index: usize) -> f32 {
        match self {
            Self::F64 => f64::from_le_bytes(element(bytes, index)) as f32,
            Self::F32 => f32::from_le_bytes(element(bytes, index)),
            Self::F16 => f16_to_f32(u16::from_le_bytes(element(bytes, index))),
            Self::Bf16 => bf16_to_f32(u16::from_le_bytes(element(bytes, index))),
            Self::E8M0 => Float8::E8M0.value(bytes[index]),
        }
    }
}

fn element<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
    bytes.as_chunks().0[index]
}

/// Names that the scale of a weight may have.
fn names(weight: &str) -> Vec<String> {
    match weight.strip_suffix(".weight") {
        Some(module) => SUFFIXES.iter().map(|suffix| format!("{module}.{suffix}")).collect(),
        None => PLAIN_SUFFIXES.iter().map(|suffix| format!("{weight}{suffix}")).collect(),
    }
}

/// How a scale of shape `scale` covers a weight, dimension by dimension; `None` if it does not.
fn layout(weight: &[usize], scale: &[usize], quantization: &Quantization) -> Option<Vec<Axis>> {
    let scale = aligned(weight, scale)?;
    let mut axes = Vec::with_capacity(weight.len());
    let mut stride = 1;
    for (at, (&size, &scales)) in weight.iter().zip(&scale).enumerate().rev() {
        let block = match (at + 2).checked_sub(weight.len()) {
            Some(side) => block(size, scales, quantization.blocks().map(|block| block[side]))?,
            None => whole_or_each(size, scales)?,
        };
        axes.insert(0, Axis { size, block, stride });
        stride *= scales;
    }
    Some(axes)
}

/// The scale's shape with one number for each dimension of the weight.
fn aligned(weight: &[usize], scale: &[usize]) -> Option<Vec<usize>> {
    if scale.iter().product::<usize>() == 1 {
        return Some(vec![1; weight.len()]);
    }
    // Blocks may come with the dimensions inside of them, which have one scale: rows, 1, columns, 1.
    let (pairs, rest) = scale.as_chunks::<2>();
    if rest.is_empty() && pairs.len() == weight.len() && weight.len() > 1 && pairs.iter().all(|p| p[1] == 1) {
        return Some(pairs.iter().map(|p| p[0]).collect());
    }
    if scale.len() == weight.len() {
        return Some(scale.to_vec());
    }
    // Fewer dimensions are the slowest ones: a scale for each row, or for each expert.
    let is_prefix =
        scale.len() < weight.len() && scale.iter().zip(weight).all(|(&n, &size)| n == size || n == 1);
    is_prefix.then(|| [scale, &vec![1; weight.len() - scale.len()]].concat())
}

/// How many neighbours of `size` share one of `scales`: all, none, a configured number, or the one power of two from
/// 16 on that makes so many blocks (the last may be smaller).
fn block(size: usize, scales: usize, configured: impl Iterator<Item = usize>) -> Option<usize> {
    const SMALLEST: u32 = 4;
    let powers = (SMALLEST..usize::BITS - 1).map(|bits| 1usize << bits).take_while(|&block| block < size);
    let fits = |&block: &usize| size.div_ceil(block) == scales;
    whole_or_each(size, scales).or_else(|| configured.chain(powers).find(fits))
}

fn whole_or_each(size: usize, scales: usize) -> Option<usize> {
    match scales {
        1 => Some(size.max(1)),
        _ if scales == size && size > 0 => Some(1),
        _ => None,
    }
}

/// Shapes that fit a weight, for people.
fn accepted(weight: &[usize], quantization: &Quantization) -> String {
    const USUAL: [usize; 2] = [128, 128];
    let [.., rows, columns] = *weight else { return "[1] (the whole tensor)".to_owned() };
    let before = &weight[..weight.len() - 2];
    let [down, across] = quantization.blocks().next().unwrap_or(USUAL);
    let with = |last: [usize; 2]| [before, &last].concat();
    format!(
        "[1] (the whole tensor), {:?} (rows), {:?} (blocks of {down} x {across})",
        with([rows, 1]),
        with([rows.div_ceil(down), columns.div_ceil(across)])
    )
}
