//! The tensors of a checkpoint: safetensors, single or sharded, memory-mapped and read lazily.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use hf2q_gguf::Bytes;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::error::ConvertError;
use crate::folder::Folder;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// One tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointTensor {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Slowest dimension first, as in safetensors.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub bytes: Bytes,
    /// File name of the shard.
    pub shard: String,
}

/// All tensors of a folder, by name.
#[derive(Debug)]
pub struct Checkpoint {
    tensors: BTreeMap<String, CheckpointTensor>,
}

impl Checkpoint {
    /// Reads the headers of all shards. Weight data is touched only when used.
    pub fn open(folder: &Folder) -> Result<Self, ConvertError> {
        let shards = if folder.path(SINGLE).exists() {
            BTreeMap::from([(SINGLE.to_owned(), Vec::new())])
        } else {
            index_shards(folder)?
        };
        let absent = |(file, _): &(&String, &Vec<String>)| !folder.path(file).is_file();
        let missing: Vec<_> = shards
            .iter()
            .filter(absent)
            .map(|(f, t): (&String, &Vec<String>)| (f.clone(), t.clone()))
            .collect();
        if !missing.is_empty() {
            return Err(ConvertError::MissingShards { dir: folder.dir().to_owned(), shards: missing });
        }
        let mut tensors: BTreeMap<String, CheckpointTensor> = BTreeMap::new();
        for (shard, promised) in &shards {
            let found = read_shard(folder, shard)?;
            let lost: Vec<String> = promised.iter().filter(|t| !found.contains_key(*t)).cloned().collect();
            if !lost.is_empty() {
                let why = format!(
                    "the index places {} tensors here that are not, the first is {}",
                    lost.len(),
                    lost[0]
                );
                return Err(ConvertError::Safetensors { path: folder.path(shard), why });
            }
            for (name, tensor) in found {
                if let Some(first) = tensors.get(&name) {
                    let (first, second) = (first.shard.clone(), shard.clone());
                    return Err(ConvertError::DuplicateTensor { tensor: name, first, second });
                }
                tensors.insert(name, tensor);
            }
        }
        Ok(Self { tensors })
    }

    /// A tensor by name.
    pub fn get(&self, name: &str) -> Option<&CheckpointTensor> {
        self.tensors.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

/// Shard file names of the index, each with its tensors.
fn index_shards(folder: &Folder) -> Result<BTreeMap<String, Vec<String>>, ConvertError> {
    let Some(index) = folder.json(INDEX)? else {
        let torch =
            folder.path("pytorch_model.bin").exists() || folder.path("pytorch_model.bin.index.json").exists();
        let hint =
            if torch { "save the checkpoint as safetensors first" } else { "is this a checkpoint folder?" };
        return Err(ConvertError::NoWeights { dir: folder.dir().to_owned(), hint });
    };
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| folder.bad_key(INDEX, "weight_map", index.get("weight_map"), "an object"))?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| {
            folder.bad_key(INDEX, format!("weight_map.{tensor}"), Some(file), "a file name")
        })?;
        if !is_plain_name(file) {
            let path = folder.path(INDEX);
            return Err(ConvertError::ShardPath { path, shard: file.to_owned(), tensor: tensor.clone() });
        }
        shards.entry(file.to_owned()).or_default().push(tensor.clone());
    }
    Ok(shards)
}

/// One normal component: nothing that leads out of the folder.
fn is_plain_name(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(p)), None) if p == file)
        && !file.contains(['/', '\\', '\0'])
}

fn read_shard(folder: &Folder, shard: &str) -> Result<HashMap<String, CheckpointTensor>, ConvertError> {
    let path = folder.path(shard);
    let bytes = Bytes::map(&path).map_err(|source| ConvertError::Io { path: path.clone(), source })?;
    let bad = |why: String| ConvertError::Safetensors { path: path.clone(), why };
    let (header, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| bad(e.to_string()))?;
    let data = header + size_of::<u64>();
    let mut tensors = HashMap::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let bytes = bytes
            .slice(data + start..data + end)
            .ok_or_else(|| bad(format!("tensor {name} reaches beyond the end of the file")))?;
        let tensor =
            CheckpointTensor { dtype: info.dtype, shape: info.shape.clone(), bytes, shard: shard.to_owned() };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_inside_the_folder_are_plain() {
        assert!(is_plain_name("model-00001-of-00002.safetensors"));
        for bad in
            ["../x.safetensors", "/etc/passwd", "sub/../../x", "sub/x", "..", ".", "", "a\\b", "x/", "./x"]
        {
            assert!(!is_plain_name(bad), "{bad:?}");
        }
    }
}
