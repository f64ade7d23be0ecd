//! A HuggingFace checkpoint as a source.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use hf2q_arch::{Class, Config, TensorRow};
use hf2q_gguf::Bytes;

use super::target::Target;
use super::{Kind, Source, SourceTensor, metadata};
use crate::checkpoint::{Checkpoint, CheckpointTensor};
use crate::error::ConvertError;
use crate::folder::Folder;
use crate::recipe;
use crate::rows::{Finder, Rows};
use crate::scales::{self, Quantization};

pub(super) fn open(path: &Path, target: Option<&Target>) -> Result<Source, ConvertError> {
    let folder = Folder::new(path);
    let json = folder.required_json("config.json")?;
    let mut config = Config::from_hf(&json)?;
    let mut warnings = Vec::new();
    if let Some(target) = target {
        target.join(path, &mut config, &mut warnings)?;
    }
    if let Some(eagle) = &config.eagle {
        if eagle.target_layers.is_empty() {
            return Err(ConvertError::TargetLayers { path: folder.path("config.json") });
        }
        warnings.push(format!(
            "the head reads the inputs of layers {:?} of its target, counted from 0",
            eagle.target_layers
        ));
    }
    let quantization = Quantization::read(&folder, &json)?;
    let checkpoint = Checkpoint::open(&folder)?;
    scales::refuse_packed(checkpoint.names().filter_map(|n| Some((n, checkpoint.get(n)?))))?;
    let tensors = Map { folder: &folder, config: &config, quantization: &quantization }
        .tensors(&checkpoint, &mut warnings)?;
    let metadata = metadata::of_checkpoint(&folder, &config, target)?;
    let mut inputs = folder.inputs()?;
    inputs.extend(target.iter().flat_map(|target| target.inputs.iter().cloned()));
    Ok(Source { kind: Kind::Checkpoint, config, metadata, tensors, inputs, warnings })
}

struct Map<'a> {
    folder: &'a Folder,
    config: &'a Config,
    quantization: &'a Quantization,
}

impl Map<'_> {
    /// Pairs every row of the tensor map with its tensors, and accounts for every tensor of the checkpoint.
    fn tensors(
        &self,
        checkpoint: &Checkpoint,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<SourceTensor>, ConvertError> {
        let names: HashMap<String, &str> =
            checkpoint.names().map(|n| (canonical(n, self.config), n)).collect();
        let find = |name: &str| -> Option<&CheckpointTensor> { checkpoint.get(names.get(name)?) };
        let (missing, scales) = (Vec::new(), Vec::new());
        let mut finder = Finder {
            find: &find,
            quantization: self.quantization,
            vocabulary: self.config.vocab,
            missing,
            scales,
        };
        let mut used: HashSet<String> = HashSet::new();
        let mut tensors = Vec::new();
        for row in self.config.tensors() {
            used.extend(row.source_names().map(str::to_owned));
            if is_copy_of_embedding(&row, &find) {
                continue;
            }
            let Some(rows) = Rows::resolve(&row, &mut finder)? else { continue };
            if row.class == Class::Output && self.config.tied_output {
                warnings.push(format!(
                    "{} differs from the embedding although config.json ties them; it is kept",
                    row.gguf
                ));
            }
            let shape: Vec<u64> = row.shape.iter().map(|&d| d as u64).collect();
            let natural = recipe::natural_type(&row.gguf, &shape, rows.float_type());
            // Llama.cpp's converter goes through the shards by the names of their tensors; what has no tensor comes first.
            let place =
                row.source_names().filter_map(|n| Some((find(n)?.shard.as_str(), *names.get(n)?))).max();
            tensors.push((place, SourceTensor { name: row.gguf.clone(), shape, natural, rows }));
        }
        if !finder.missing.is_empty() {
            let dir = self.folder.dir().to_owned();
            return Err(ConvertError::MissingTensors { dir, names: finder.missing });
        }
        used.extend(finder.scales);
        let ignored = |name: &&String| self.config.ignores(name) || scales::is_activation_scale(name);
        used.extend(names.keys().filter(ignored).cloned());
        account_for_rest(self.folder, &names, &used, &find, warnings)?;
        tensors.sort_by_key(|(place, _)| *place);
        Ok(tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }
}

/// A stored output matrix that equals the embedding says nothing new.
fn is_copy_of_embedding<'a>(row: &TensorRow, find: &impl Fn(&str) -> Option<&'a CheckpointTensor>) -> bool {
    const OUTPUT: &str = "lm_head.weight";
    if !row.optional || row.source_names().next() != Some(OUTPUT) {
        return false;
    }
    match (find(OUTPUT), find("model.embed_tokens.weight")) {
        // Floats of 8 bits are equal only if their scales are too.
        (Some(a), Some(b)) if scales::float8(a.dtype).is_none() => {
            a.dtype == b.dtype && a.shape == b.shape && equal(&a.bytes, &b.bytes)
        }
        _ => false,
    }
}

/// Whether two large tensors are equal, in the memory of a small part of them.
fn equal(a: &Bytes, b: &Bytes) -> bool {
    const PART: usize = 4 << 20;
    a.len() == b.len()
        && (0..a.len()).step_by(PART).all(|start| {
            let range = start..(start + PART).min(a.len());
            let (Some(a), Some(b)) = (a.slice(range.clone()), b.slice(range)) else { return false };
            let equal = *a == *b;
            a.release();
            b.release();
            equal
        })
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

/// Names as text-only checkpoints have them; those of heads as their authors' have.
fn canonical(name: &str, config: &Config) -> String {
    if config.eagle.is_some() {
        let name = name.strip_prefix("model.").unwrap_or(name);
        return name
            .strip_prefix("layers.0.")
            .map_or_else(|| name.to_owned(), |rest| format!("midlayer.{rest}"));
    }
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
