//! How the values of a tensor become blocks of its type.

use hf2q_gguf::TensorType;
use hf2q_quant::QuantError;
use hf2q_quant::lattice::{self, Fit};

use crate::error::ConvertError;
use crate::importance::{Importance, Weights};
use crate::recipe::{Choice, Recipe};
use crate::record::Why;
use crate::source::SourceTensor;

/// How to encode a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    /// All columns matter the same.
    Plain,
    /// Columns matter by these weights, for each matrix of a stack.
    Weighted(Weights),
    /// The values lie on the lattice of `q4_0` already.
    Lattice,
}

impl Encoding {
    /// The encodings of all tensors under an importance matrix.
    pub(crate) fn with(
        importance: Option<&Importance>,
        tensors: &[&SourceTensor],
        (recipe, choices): (Recipe, &[Choice]),
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Self>, ConvertError> {
        let Some(importance) = importance else { return Ok(vec![Self::Plain; tensors.len()]) };
        let mut missing = Vec::new();
        let mut encodings = Vec::new();
        for (tensor, choice) in tensors.iter().zip(choices) {
            let quantized = choice.ty.block_len() > 1;
            let (columns, matrices) = (tensor.rows.cols(), tensor.rows.matrices());
            let weights = match quantized {
                true => importance.weights_for(&tensor.name, columns, matrices)?,
                false => None,
            };
            if weights.is_none() && recipe.needs_importance(&tensor.name, choice.ty) {
                let (recipe, tensor) = (recipe.name(), tensor.name.clone());
                return Err(ConvertError::NeedsImportance { recipe, tensor, ty: choice.ty });
            }
            if quantized && weights.is_none() {
                missing.push(tensor.name.as_str());
            }
            encodings.push(weights.map_or(Self::Plain, Self::Weighted));
        }
        if let Some(first) = missing.first() {
            let more =
                if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
            warnings.push(format!("no importance is known for {first}{more}: encoded without"));
        }
        Ok(encodings)
    }

    /// Appends blocks of `ty` that hold `values`, rows of matrix number `matrix`. Says how well they lay on a lattice, where
    /// they should.
    pub(crate) fn encode(
        &self,
        ty: TensorType,
        matrix: usize,
        values: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<Fit, QuantError> {
        match self {
            Self::Plain => hf2q_quant::quantize(ty, values, out)?,
            Self::Weighted(weights) => {
                hf2q_quant::quantize_weighted(ty, values, weights.expert(matrix), out)?
            }
            Self::Lattice => return lattice::quantize(values, out),
        }
        Ok(Fit::default())
    }
}

/// Gives tensors whose values lie on the lattice of `q4_0` that type and encoding, the embedding included: no larger type
/// would keep more.
pub(crate) fn find_lattice(
    tensors: &[&SourceTensor],
    choices: &mut [Choice],
    encodings: &mut [Encoding],
) -> Result<(), ConvertError> {
    for ((tensor, choice), encoding) in tensors.iter().zip(choices).zip(encodings) {
        let is_q4_0 = tensor.rows.raw(TensorType::Q4_0, 0..0).is_some();
        let fixed = is_q4_0 || matches!(choice.why, Why::Kept | Why::Override);
        if !fixed && tensor.rows.cols().is_multiple_of(TensorType::Q4_0.block_len()) && on_lattice(tensor)? {
            *choice = Choice { ty: TensorType::Q4_0, why: Why::Lattice };
            *encoding = Encoding::Lattice;
        }
    }
    Ok(())
}

/// What was found, in one sentence; `None` where nothing was.
pub(crate) fn lattice_note(encodings: &[Encoding], fit: Fit) -> Option<String> {
    let tensors = encodings.iter().filter(|e| matches!(e, Encoding::Lattice)).count();
    let exact = 100.0 * fit.exact as f64 / fit.blocks.max(1) as f64;
    (tensors > 0).then(|| {
        format!(
            "{tensors} tensors were trained for q4_0: {exact:.2} % of their blocks are kept exactly, which the usual encoder would not do"
        )
    })
}

fn on_lattice(tensor: &SourceTensor) -> Result<bool, ConvertError> {
    let rows = &tensor.rows;
    let mut evidence = lattice::Evidence::default();
    let mut values = Vec::new();
    for row in lattice::sample_rows(rows.count(), rows.cols()) {
        values.clear();
        let read = rows.read(row..row + 1, &mut values);
        read.map_err(|source| ConvertError::Encode { tensor: tensor.name.clone(), row, source })?;
        rows.release(row..row + 1);
        evidence += lattice::Evidence::of(&values);
    }
    Ok(evidence.is_lattice())
}
