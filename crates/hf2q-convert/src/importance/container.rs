//! Importance in a GGUF file: for each weight `NAME.in_sum2` (`[columns, matrices]`, sums of squares), `NAME.counts`
//! (`[1, matrices]`, rows) and perhaps `NAME.in_sum` (sums), all f32. Other tensors, such as statistics, are passed over.

use std::collections::BTreeMap;
use std::path::Path;

use hf2q_gguf::{Array, Gguf, GgufError, GgufWriter, Metadata, TensorInfo, TensorSpec, TensorType, Value};

use super::Importance;
use super::entry::{Entry, MAX_COUNT};
use super::error::ImportanceError;

const SQUARES: &str = "in_sum2";
const SUMS: &str = "in_sum";
const COUNTS: &str = "counts";

const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";

/// Rows of a chunk where no file says.
pub(super) const USUAL_CHUNK: u32 = 512;

pub(super) fn read(gguf: &Gguf) -> Result<Importance, ImportanceError> {
    let metadata = gguf.metadata();
    let kind = |found: String| Err(ImportanceError::Kind { found });
    if let Some(ty) = metadata.opt_str("general.type")?.filter(|ty| *ty != "imatrix") {
        return kind(format!("its general.type is {ty:?}"));
    }
    let mut entries = BTreeMap::new();
    for tensor in gguf.tensors() {
        match tensor.name.rsplit_once('.') {
            Some((name, SQUARES)) => drop(entries.insert(name.to_owned(), entry(gguf, name, tensor)?)),
            Some((name, part @ (SUMS | COUNTS))) => {
                partner(gguf, name, SQUARES, part)?;
            }
            _ => {}
        }
    }
    if entries.is_empty() {
        return kind(format!("it holds no tensor NAME.{SQUARES}"));
    }
    Ok(Importance {
        entries,
        datasets: metadata.opt_strings(DATASETS)?.unwrap_or_default().to_vec(),
        chunk_count: metadata.opt_u32(CHUNK_COUNT)?.unwrap_or(0),
        chunk_size: metadata.opt_u32(CHUNK_SIZE)?.filter(|n| *n > 0),
        warnings: Vec::new(),
    })
}

/// A tensor that must be there because `present` is.
fn partner<'a>(
    gguf: &'a Gguf,
    name: &str,
    part: &str,
    present: &str,
) -> Result<&'a TensorInfo, ImportanceError> {
    let missing = format!("{name}.{part}");
    match gguf.tensor(&missing) {
        Some(tensor) => Ok(tensor),
        None => Err(ImportanceError::Pair { present: format!("{name}.{present}"), missing }),
    }
}

fn entry(gguf: &Gguf, name: &str, squares: &TensorInfo) -> Result<Entry, ImportanceError> {
    let counts = values(gguf, partner(gguf, name, COUNTS, SQUARES)?)?;
    let sums = gguf.tensor(&format!("{name}.{SUMS}")).map(|t| values(gguf, t)).transpose()?;
    let entry = Entry {
        squares: values(gguf, squares)?,
        sums,
        counts: counts.iter().enumerate().map(|(i, &n)| count(name, i, n)).collect::<Result<_, _>>()?,
    };
    entry.check(name)?;
    Ok(entry)
}

fn count(tensor: &str, matrix: usize, found: f32) -> Result<u64, ImportanceError> {
    if (0.0..=MAX_COUNT).contains(&found) {
        return Ok(found.round() as u64);
    }
    let what = format!("the count of matrix {matrix}");
    let expected = "a number of rows";
    Err(ImportanceError::Value { tensor: tensor.to_owned(), what, found, expected })
}

fn values(gguf: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>, ImportanceError> {
    if tensor.ty != TensorType::F32 {
        return Err(ImportanceError::Type { tensor: tensor.name.clone(), found: tensor.ty.to_string() });
    }
    Ok(gguf.data(tensor).as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// Writes a file; nothing is left of it if that fails. `inputs` must not be the output.
pub(super) fn write(importance: &Importance, path: &Path, inputs: &[&Path]) -> Result<(), GgufError> {
    let mut metadata = Metadata::new();
    metadata.insert("general.type", "imatrix");
    metadata.insert(DATASETS, Value::Array(Array::String(importance.datasets.clone())));
    metadata.insert(CHUNK_COUNT, importance.chunk_count);
    metadata.insert(CHUNK_SIZE, importance.chunk_size.unwrap_or(USUAL_CHUNK));
    let tensors: Vec<(TensorSpec, Vec<f32>)> =
        importance.entries.iter().flat_map(|(name, entry)| tensors(name, entry)).collect();
    let specs = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = GgufWriter::create(path, metadata, specs)?;
    writer.protect(inputs)?;
    for (spec, values) in &tensors {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        writer.write(&spec.name, &bytes)?;
    }
    writer.finish()?;
    Ok(())
}

fn tensors(name: &str, entry: &Entry) -> Vec<(TensorSpec, Vec<f32>)> {
    let tensor = |part: &str, columns: usize, values: Vec<f32>| {
        let matrices = entry.counts.len() as u64;
        let mut shape = vec![columns as u64];
        shape.extend((matrices > 1).then_some(matrices));
        (TensorSpec { name: format!("{name}.{part}"), ty: TensorType::F32, shape }, values)
    };
    let mut all = vec![
        tensor(SQUARES, entry.columns(), entry.squares.clone()),
        tensor(COUNTS, 1, entry.counts.iter().map(|&n| n as f32).collect()),
    ];
    all.extend(entry.sums.clone().map(|sums| tensor(SUMS, entry.columns(), sums)));
    all
}
