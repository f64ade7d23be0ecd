//! Whether a GGUF file is whole and sound, and how far its values lie from those it was made from.

mod model;
mod problem;
mod weights;

use std::collections::BTreeMap;

use hf2q_gguf::{Gguf, TensorType};

use crate::deviation::Deviation;
use crate::error::ConvertError;
use crate::plan::Progress;
use crate::source::{Source, SourceTensor};

pub use model::{ModelCheck, check_model};
pub use problem::Problem;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Every tensor of the file, in its order.
    pub tensors: Vec<Verified>,
    /// What is wrong. Empty for a good file.
    pub problems: Vec<Problem>,
    /// What a user should know, without being wrong.
    pub warnings: Vec<String>,
}

/// One tensor of the file.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Its name.
    pub name: String,
    /// How it is stored.
    pub ty: TensorType,
    /// GGUF order: columns first.
    pub shape: Vec<u64>,
    /// Size of the stored data.
    pub bytes: u64,
    /// What it is in the source, for people; `None` where it was not compared.
    pub source: Option<String>,
    /// Distance from the source, where it was compared.
    pub deviation: Option<Deviation>,
}

impl Verification {
    /// Distance of all compared matrices together; `None` where none were. Vectors are left out: values such as frequency
    /// factors of 1e30 would hide all others.
    pub fn total(&self) -> Option<Deviation> {
        let matrices = self.tensors.iter().filter(|t| t.shape.iter().skip(1).any(|&d| d > 1));
        matrices.filter_map(|t| t.deviation).reduce(Deviation::and)
    }

    /// Compared tensors, the one with the largest relative error first. What is no number counts as larger than any.
    pub fn worst_first(&self) -> Vec<&Verified> {
        let error = |t: &Verified| t.deviation.map(|d| d.relative_error());
        let mut compared: Vec<&Verified> = self.tensors.iter().filter(|t| t.deviation.is_some()).collect();
        compared.sort_by(|a, b| match (error(a), error(b)) {
            (Some(a), Some(b)) => b.abs().total_cmp(&a.abs()),
            _ => std::cmp::Ordering::Equal,
        });
        compared
    }
}

/// Checks an opened file: every tensor that its architecture calls for is there with its shape, there is a tokenizer of
/// the right size, no block decodes to NaN or infinity. That tensors lie within the file was checked on opening.
///
/// With a `source`, every tensor is decoded and compared with it; a relative error `‖x − q‖ / ‖x‖` above `max_error` is
/// a problem. Memory holds a few rows for each core, never a tensor.
///
/// # Errors
/// Only [`ConvertError::Cancelled`]: what is wrong with the file is the result.
pub fn verify(
    gguf: &Gguf,
    source: Option<&Source>,
    max_error: f64,
    progress: &mut dyn Progress,
) -> Result<Verification, ConvertError> {
    let mut found = Verification::default();
    model::check(gguf, &mut found);
    let originals = source.map(|source| pair(gguf, source, &mut found)).unwrap_or_default();
    let results = weights::check(gguf, &originals, progress)?;
    for (info, result) in gguf.tensors().iter().zip(results) {
        let original = originals.get(&info.name);
        let tensor = Verified {
            name: info.name.clone(),
            ty: info.ty,
            shape: info.shape.clone(),
            bytes: info.bytes,
            source: original.map(|o| o.rows.describe()),
            deviation: result.deviation,
        };
        found.problems.extend(result.problem(&tensor, max_error));
        found.tensors.push(tensor);
    }
    Ok(found)
}

/// The tensors of the source that can be compared, by name; says which cannot.
fn pair<'s>(gguf: &Gguf, source: &'s Source, found: &mut Verification) -> BTreeMap<String, &'s SourceTensor> {
    model::compare_metadata(gguf.metadata(), &source.metadata, found);
    let mut pairs = BTreeMap::new();
    for original in &source.tensors {
        let name = original.name.clone();
        match gguf.tensor(&name) {
            None => found.problems.push(Problem::NotInFile { tensor: name }),
            Some(stored) if model::significant(&stored.shape) != model::significant(&original.shape) => {
                let (found_shape, expected) = (stored.shape.clone(), original.shape.clone());
                found.problems.push(Problem::ShapeInSource { tensor: name, found: found_shape, expected });
            }
            Some(_) => {
                pairs.insert(name, original);
            }
        }
    }
    let named: std::collections::HashSet<&str> = source.tensors.iter().map(|t| t.name.as_str()).collect();
    let extra = gguf.tensors().iter().filter(|t| !named.contains(t.name.as_str()));
    found.problems.extend(extra.map(|t| Problem::NotInSource { tensor: t.name.clone() }));
    pairs
}
