//! Why a checkpoint cannot be converted faithfully.

use std::path::PathBuf;

use hf2q_arch::ArchError;
use hf2q_gguf::{GgufError, TensorType};
use hf2q_quant::{BadBlock, QuantError};

use crate::importance::ImportanceError;
use crate::recipe::Recipe;
use crate::scales::QuantizedError;

/// Why a conversion stopped. No output file is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// A file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A JSON file is malformed.
    #[error("{path}: not valid JSON: {source}", path = path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A JSON file lacks something, or holds something unexpected.
    #[error("{path}: {key} is {found}, expected {expected}", path = path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What it holds.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// No weights in a format that can be read.
    #[error("{dir}: no model.safetensors and no model.safetensors.index.json; {hint}", dir = dir.display())]
    NoWeights {
        /// The folder.
        dir: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// The index names a file outside the folder.
    #[error("{path}: shard {shard:?} of tensor {tensor} is not a plain file name; shards must lie beside the index", path = path.display())]
    ShardPath {
        /// The index.
        path: PathBuf,
        /// The name.
        shard: String,
        /// A tensor it is given for.
        tensor: String,
    },
    /// Shards that the index names do not exist.
    #[error("{dir}: {}", missing_shards(shards), dir = dir.display())]
    MissingShards {
        /// The folder.
        dir: PathBuf,
        /// File names, each with the tensors it should hold.
        shards: Vec<(String, Vec<String>)>,
    },
    /// A safetensors header is malformed.
    #[error("{path}: {why}", path = path.display())]
    Safetensors {
        /// The shard.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Two shards hold the same tensor.
    #[error("tensor {tensor} is in two shards, {first} and {second}; remove one")]
    DuplicateTensor {
        /// Its name.
        tensor: String,
        /// A file.
        first: String,
        /// Another file.
        second: String,
    },
    /// Tensors that the architecture needs are not there.
    #[error("{dir}: the checkpoint lacks {} tensors that config.json calls for: {}", names.len(), list(names), dir = dir.display())]
    MissingTensors {
        /// The folder.
        dir: PathBuf,
        /// Their names.
        names: Vec<String>,
    },
    /// Tensors that nothing in the architecture would use.
    #[error("{dir}: {} tensors would be lost, since nothing uses them: {}", names.len(), list(names), dir = dir.display())]
    UnusedTensors {
        /// The folder.
        dir: PathBuf,
        /// Their names.
        names: Vec<String>,
    },
    /// A tensor has another shape than `config.json` implies.
    #[error("tensor {tensor} in {shard} has shape {found:?}, config.json implies {expected:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// The file.
        shard: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape needed.
        expected: Vec<usize>,
    },
    /// A tensor's elements cannot be read.
    #[error(
        "tensor {tensor} in {shard} has dtype {dtype}, accepted are F32, F16, BF16, F64, and F8_E4M3 and F8_E5M2 with scales; \
         dequantize the checkpoint first"
    )]
    Dtype {
        /// Its name.
        tensor: String,
        /// The file.
        shard: String,
        /// What it is.
        dtype: String,
    },
    /// A list of tokens is not made of integers.
    #[error("tensor {tensor} in {shard} has dtype {dtype}, accepted are I32 and I64: it lists tokens")]
    NotTokens {
        /// Its name.
        tensor: String,
        /// The file.
        shard: String,
        /// What it is.
        dtype: String,
    },
    /// A list of tokens has an entry that is none.
    #[error("tensor {tensor} in {shard} lists {found} at place {index}, tokens are 0 to below {vocabulary}")]
    NoToken {
        /// Its name.
        tensor: String,
        /// The file.
        shard: String,
        /// Place in the list.
        index: usize,
        /// What stands there.
        found: i64,
        /// Tokens that exist.
        vocabulary: usize,
    },
    /// A target was given for what drafts for none.
    #[error(
        "{path} is {}, and {target} was given as its target: only checkpoint folders of drafters ({}) have one",
        architecture.map_or_else(|| "no folder".to_owned(), |a| format!("a {a} model")), drafters(),
        path = path.display(), target = target.display()
    )]
    NoDrafter {
        /// What was to be converted.
        path: PathBuf,
        /// What it is; `None`: no folder.
        architecture: Option<&'static str>,
        /// The target.
        target: PathBuf,
    },
    /// A drafter of another model.
    #[error("this drafter is not for {path}: its {what} is {drafter}, the model's is {target}", path = path.display())]
    OtherTarget {
        /// The target.
        path: PathBuf,
        /// What differs.
        what: String,
        /// The drafter's.
        drafter: String,
        /// The target's.
        target: String,
    },
    /// A head whose configuration does not say which layers of its target it reads.
    #[error(
        "{path}: key eagle_config.eagle_aux_hidden_state_layer_ids is missing, which says what the head reads of its target; add \
         it, or give the target (--target), of which the usual layers are taken then",
        path = path.display()
    )]
    TargetLayers {
        /// The file.
        path: PathBuf,
    },
    /// A token that two logits are of.
    #[error("tensor {tensor} in {shard} lists token {token} twice, at place {index} for the second time")]
    TokenTwice {
        /// Its name.
        tensor: String,
        /// The file.
        shard: String,
        /// Place in the list.
        index: usize,
        /// The token.
        token: i64,
    },
    /// The tokenizer cannot be expressed in GGUF metadata.
    #[error("{path}: {what} is not supported; {accepted}", path = path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
        /// What can be converted.
        accepted: &'static str,
    },
    /// An unknown output type.
    #[error("there is no output type {found:?}; accepted are {}", recipes())]
    Recipe {
        /// What was asked for.
        found: String,
    },
    /// An output type that llama.cpp knows and that cannot be written here.
    #[error("output type {found} has no encoder here; accepted are {}", recipes())]
    RecipeNotEncoded {
        /// What was asked for.
        found: String,
    },
    /// A recipe that is useless without an importance matrix.
    #[error(
        "{recipe} needs an importance matrix: {tensor} as {ty} would be worthless without; give one, or take q2_k"
    )]
    NeedsImportance {
        /// The recipe.
        recipe: &'static str,
        /// A tensor that suffers.
        tensor: String,
        /// The type it would get.
        ty: TensorType,
    },
    /// A pattern that cannot be searched in names of tensors.
    #[error("pattern {pattern:?}: {why}")]
    Pattern {
        /// What was given.
        pattern: String,
        /// What is wrong.
        why: String,
    },
    /// A tensor that should lie in a layer and does not.
    #[error("{tensor}: the name tells no layer below {layers}, as blk.0. would")]
    NoLayer {
        /// Its GGUF name.
        tensor: String,
        /// How many there are.
        layers: usize,
    },
    /// A type that no tensor can be written in.
    #[error("tensors cannot be written as {found:?}; accepted are {}", types())]
    OverrideType {
        /// What was asked for.
        found: String,
    },
    /// The caller ended the conversion.
    #[error("cancelled; nothing was written")]
    Cancelled,
    /// Rows that fit no block of the type they should have, where fallbacks are refused.
    #[error(
        "{tensor} cannot be {wanted}: its rows of {columns} are no multiple of {}{}; allow fallbacks or pick another type", wanted.block_len(), and_more(*others)
    )]
    Fallback {
        /// Its GGUF name.
        tensor: String,
        /// Elements of a row.
        columns: u64,
        /// The type it should have.
        wanted: TensorType,
        /// Other tensors of which the same is true.
        others: usize,
    },
    /// A block that no quantizer writes.
    #[error("tensor {tensor}, from row {row}: {source}")]
    BadBlock {
        /// Its GGUF name.
        tensor: String,
        /// The row from which blocks are counted.
        row: usize,
        /// What is wrong.
        source: BadBlock,
    },
    /// A value that no format can hold.
    #[error("tensor {tensor}, from row {row}: {source}")]
    Encode {
        /// Its GGUF name.
        tensor: String,
        /// The row from which values are counted.
        row: usize,
        /// What is wrong.
        source: QuantError,
    },
    /// The configuration is not one of a supported architecture.
    #[error(transparent)]
    Arch(#[from] ArchError),
    /// The importance of columns cannot be used.
    #[error(transparent)]
    Importance(#[from] ImportanceError),
    /// Weights that the checkpoint stores quantized cannot be used.
    #[error(transparent)]
    Quantized(#[from] QuantizedError),
    /// The output could not be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

fn missing_shards(shards: &[(String, Vec<String>)]) -> String {
    let one =
        |(file, tensors): &(String, Vec<String>)| format!("{file} is missing (it holds {})", list(tensors));
    shards.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn and_more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" (so are those of {others} more tensors)") }
}

fn recipes() -> String {
    Recipe::names().collect::<Vec<_>>().join(", ")
}

fn types() -> String {
    hf2q_quant::encodable().map(TensorType::name).collect::<Vec<_>>().join(", ")
}

/// The first few names, and how many more there are.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let head = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{head} and {} more", names.len() - SHOWN) } else { head }
}

fn drafters() -> String {
    let names = hf2q_arch::Architecture::ALL.into_iter().filter(|a| a.is_drafter()).map(|a| a.name());
    names.collect::<Vec<_>>().join(", ")
}
