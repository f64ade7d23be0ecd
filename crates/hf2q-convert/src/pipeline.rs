//! Checkpoint folder to GGUF file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use hf2q_arch::{Class, Config, TensorRow};
use hf2q_gguf::{GgufWriter, Metadata, TensorSpec, TensorType, Value};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointTensor};
use crate::encode::Rows;
use crate::error::ConvertError;
use crate::folder::Folder;
use crate::recipe::Recipe;
use crate::tokenizer;

/// Bytes of f32 values that one task converts at a time.
const TASK_BYTES: usize = 4 << 20;

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Types of the tensors.
    pub recipe: Recipe,
    /// Start a new file after this many bytes of tensor data; `None`: one file.
    pub split_bytes: Option<u64>,
}

/// Told about the conversion's progress.
pub trait Progress {
    /// Called before the first tensor with the bytes that will be written.
    fn start(&mut self, total_bytes: u64);

    /// Called often with the tensor at hand and the bytes that are written. Returns whether to go on.
    fn advance(&mut self, tensor: &str, done_bytes: u64) -> bool;
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file, or the files of a split set.
    pub paths: Vec<PathBuf>,
    /// Tensors and bytes by type.
    pub by_type: BTreeMap<TensorType, (usize, u64)>,
    /// What a user should know.
    pub warnings: Vec<String>,
}

/// A tensor of the output with where its rows come from.
struct Job<'a> {
    row: TensorRow,
    ty: TensorType,
    rows: Rows<'a>,
}

/// Converts the checkpoint in `folder` to the GGUF file `output`. Nothing is left at `output` if it fails.
pub fn convert(
    folder: &Path,
    output: &Path,
    options: Options,
    progress: &mut dyn Progress,
) -> Result<Summary, ConvertError> {
    let folder = Folder::new(folder);
    let config = Config::from_hf(&folder.required_json("config.json")?)?;
    let checkpoint = Checkpoint::open(&folder)?;
    let mut warnings = Vec::new();
    let jobs = plan(&folder, &config, &checkpoint, options.recipe, &mut warnings)?;
    let metadata = metadata(&folder, &config, options.recipe)?;
    let specs: Vec<TensorSpec> = jobs.iter().map(Job::spec).collect();
    let mut writer = match options.split_bytes {
        Some(bytes) => GgufWriter::create_split(output, metadata, specs, bytes)?,
        None => GgufWriter::create(output, metadata, specs)?,
    };
    writer.protect(folder.inputs()?)?;
    progress.start(jobs.iter().map(Job::bytes).sum());
    let mut by_type: BTreeMap<TensorType, (usize, u64)> = BTreeMap::new();
    let mut done = 0;
    for job in &jobs {
        job.write(&mut writer, &mut |bytes| {
            done += bytes;
            progress.advance(&job.row.gguf, done)
        })?;
        let entry = by_type.entry(job.ty).or_default();
        *entry = (entry.0 + 1, entry.1 + job.bytes());
    }
    Ok(Summary { paths: writer.finish()?, by_type, warnings })
}

impl Job<'_> {
    fn spec(&self) -> TensorSpec {
        let shape = self.row.shape.iter().map(|&d| d as u64).collect();
        TensorSpec { name: self.row.gguf.clone(), ty: self.ty, shape }
    }

    fn bytes(&self) -> u64 {
        let row = self.ty.row_bytes(self.rows.cols()).expect("the recipe picks a type that fits the row");
        (row * self.rows.count()) as u64
    }

    /// Encodes batches of rows on all cores and writes them in order.
    fn write(
        &self,
        writer: &mut GgufWriter,
        advance: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ConvertError> {
        let per_task = (TASK_BYTES / size_of::<f32>() / self.rows.cols().max(1)).max(1);
        let starts: Vec<usize> = (0..self.rows.count()).step_by(per_task).collect();
        for batch in starts.chunks(rayon::current_num_threads()) {
            let encoded: Vec<Vec<u8>> = batch
                .par_iter()
                .map(|&start| self.encode(start..(start + per_task).min(self.rows.count())))
                .collect::<Result<_, _>>()?;
            for bytes in encoded {
                writer.write(&self.row.gguf, &bytes)?;
                if !advance(bytes.len() as u64) {
                    return Err(ConvertError::Cancelled);
                }
            }
        }
        Ok(())
    }

    fn encode(&self, range: std::ops::Range<usize>) -> Result<Vec<u8>, ConvertError> {
        let mut values = Vec::with_capacity(range.len() * self.rows.cols());
        self.rows.read(range, &mut values);
        let mut bytes = Vec::new();
        hf2q_quant::quantize(self.ty, &values, &mut bytes)
            .map_err(|source| ConvertError::Encode { tensor: self.row.gguf.clone(), source })?;
        Ok(bytes)
    }
}

/// Pairs every row of the tensor map with its tensors, and accounts for every tensor of the checkpoint.
fn plan<'a>(
    folder: &Folder,
    config: &Config,
    checkpoint: &'a Checkpoint,
    recipe: Recipe,
    warnings: &mut Vec<String>,
) -> Result<Vec<Job<'a>>, ConvertError> {
    let names: HashMap<String, &str> = checkpoint.names().map(|n| (canonical(n), n)).collect();
    let find = |name: &str| -> Option<&'a CheckpointTensor> { checkpoint.get(names.get(name)?) };
    let mut missing = Vec::new();
    let mut used: HashSet<String> = HashSet::new();
    let mut jobs = Vec::new();
    for row in config.tensors() {
        used.extend(row.source_names().map(str::to_owned));
        if is_copy_of_embedding(&row, &find) {
            continue;
        }
        let Some(rows) = Rows::resolve(&row, find, &mut missing)? else { continue };
        if row.class == Class::Output && config.tied_output {
            warnings.push(format!(
                "{} differs from the embedding although config.json ties them; it is kept",
                row.gguf
            ));
        }
        let ty = recipe.tensor_type(&row);
        if ty == TensorType::F16 && recipe.base().block_len() > 1 {
            let (name, cols) = (&row.gguf, row.shape[0]);
            warnings.push(format!(
                "{name} is kept as f16: rows of {cols} are no multiple of {}",
                recipe.base().block_len()
            ));
        }
        jobs.push(Job { row, ty, rows });
    }
    if !missing.is_empty() {
        return Err(ConvertError::MissingTensors { dir: folder.dir().to_owned(), names: missing });
    }
    used.extend(names.keys().filter(|name| config.ignores(name)).cloned());
    account_for_rest(folder, &names, &used, &find, warnings)?;
    Ok(jobs)
}

/// A stored output matrix that equals the embedding says nothing new.
fn is_copy_of_embedding<'a>(row: &TensorRow, find: &impl Fn(&str) -> Option<&'a CheckpointTensor>) -> bool {
    const OUTPUT: &str = "lm_head.weight";
    if !row.optional || row.source_names().next() != Some(OUTPUT) {
        return false;
    }
    match (find(OUTPUT), find("model.embed_tokens.weight")) {
        (Some(a), Some(b)) => a.dtype == b.dtype && a.shape == b.shape && *a.bytes == *b.bytes,
        _ => false,
    }
}

/// Parts of multimodal checkpoints that a text model does without.
const NOT_TEXT: &[&str] =
    &["vision", "audio", "multi_modal_projector", "embed_vision", "embed_audio", "visual"];

fn account_for_rest<'a>(
    folder: &Folder,
    names: &HashMap<String, &str>,
    used: &HashSet<String>,
    find: &impl Fn(&str) -> Option<&'a CheckpointTensor>,
    warnings: &mut Vec<String>,
) -> Result<(), ConvertError> {
    let elements = |name: &str| find(name).map_or(0, |t| t.shape.iter().product::<usize>());
    let rest = names.keys().filter(|n| !used.contains(*n) && elements(n) > 0);
    let is_media = |n: &&String| NOT_TEXT.iter().any(|p| n.split('.').any(|part| part.starts_with(p)));
    let (media, mut lost): (Vec<&String>, Vec<&String>) = rest.partition(|n| is_media(n));
    if !lost.is_empty() {
        lost.sort();
        let names = lost.into_iter().cloned().collect();
        return Err(ConvertError::UnusedTensors { dir: folder.dir().to_owned(), names });
    }
    if !media.is_empty() {
        warnings
            .push(format!("{} tensors of the vision and audio parts are left out: text only", media.len()));
    }
    Ok(())
}

/// Names as text-only checkpoints have them.
fn canonical(name: &str) -> String {
    for (prefix, plain) in [
        ("model.language_model.", "model."),
        ("language_model.model.", "model."),
        ("language_model.lm_head.", "lm_head."),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return format!("{plain}{rest}");
        }
    }
    name.to_owned()
}

fn metadata(folder: &Folder, config: &Config, recipe: Recipe) -> Result<Metadata, ConvertError> {
    let mut metadata = Metadata::default();
    let mut put = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    put("general.type", Value::String("model".to_owned()));
    if let Some(name) =
        folder.dir().canonicalize().ok().and_then(|d| Some(d.file_name()?.to_str()?.to_owned()))
    {
        put("general.name", Value::String(name));
    }
    put("general.file_type", Value::U32(recipe.file_type()));
    put("general.quantization_version", Value::U32(2));
    config.to_metadata(&mut metadata);
    sampling(folder, &mut metadata)?;
    tokenizer::write(folder, config, &mut metadata)?;
    Ok(metadata)
}

/// Recommended sampling parameters of `generation_config.json`.
fn sampling(folder: &Folder, metadata: &mut Metadata) -> Result<(), ConvertError> {
    let Some(json) = folder.json("generation_config.json")? else { return Ok(()) };
    let number = |key: &str| json.get(key).and_then(serde_json::Value::as_f64);
    for (key, name) in [("temperature", "temp"), ("top_p", "top_p"), ("min_p", "min_p")] {
        if let Some(value) = number(key) {
            metadata.insert(format!("general.sampling.{name}"), Value::F32(value as f32));
        }
    }
    if let Some(k) = json.get("top_k").and_then(serde_json::Value::as_i64).and_then(|k| i32::try_from(k).ok())
    {
        metadata.insert("general.sampling.top_k".to_owned(), Value::I32(k));
    }
    Ok(())
}
