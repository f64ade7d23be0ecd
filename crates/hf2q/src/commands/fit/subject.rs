//! The model of a file, or what a conversion would make of it.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use hf2q_convert::{Options, Plan, Recipe, Source};
use hf2q_gguf::Bytes;
use hf2q_model::{Model, StoredTensor};

use crate::{hub, load};

/// Opens `path`. With a type, or where it is a checkpoint, the weights are as large as they would be after a conversion, but
/// zero.
pub(super) fn open(path: &Path, ty: Option<&str>) -> Result<Model> {
    let found = hub::resolve(path)?;
    let is_checkpoint = found.join("config.json").is_file();
    match ty.or(is_checkpoint.then_some(load::CACHED_TYPE)) {
        Some(ty) => converted(&found, ty),
        None => load::model(&load::open(&found)?),
    }
}

fn converted(path: &Path, ty: &str) -> Result<Model> {
    let source = Source::open(path)?;
    // A lattice changes values, not sizes.
    let options = Options { lattice: false, ..Options::new(Recipe::from_name(ty)?) };
    let records = Plan::new(&source, options)?.records();
    let length = |bytes: u64| usize::try_from(bytes).context("a tensor is larger than memory can be");
    // All tensors share the same zeros. What is read of them is small, so the system gives the rest no memory.
    let longest = records.iter().map(|r| r.bytes).max().unwrap_or(0);
    let zeros = Bytes::from_vec(vec![0; length(longest)?]);
    let mut weights = HashMap::new();
    for r in records {
        let shape = r.shape.iter().map(|&d| length(d)).collect::<Result<_>>()?;
        let data = zeros.slice(0..length(r.bytes)?).context("no tensor is longer than the longest")?;
        weights.insert(r.name, StoredTensor { ty: r.ty, shape, data });
    }
    if let Some(tensor) = weights.get_mut(FACTORS) {
        tensor.data = factors(path, &source)?;
    }
    Ok(Model::new(source.config().clone(), weights)?)
}

/// Says how many pairs of a head turn, so how large tables of angles are.
const FACTORS: &str = "rope_freqs.weight";

fn factors(path: &Path, source: &Source) -> Result<Bytes> {
    let values = source.config().rope_factors.as_ref().map(|f| f.values()).unwrap_or_default();
    if !values.is_empty() {
        return Ok(Bytes::from_vec(values.iter().flat_map(|v| v.to_le_bytes()).collect()));
    }
    let gguf = load::open(path)?;
    let tensor = gguf.tensor(FACTORS).with_context(|| format!("{}: no {FACTORS}", path.display()))?;
    Ok(gguf.bytes(tensor))
}
