//! Which files a conversion needs.

use crate::error::HubError;
use crate::index::{INDEX, SINGLE};
use crate::listing::{Entry, Listing, check_plain};
use crate::repository::Repository;

/// Small files that are taken if they are there, by whole name.
const NAMES: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "hf_quant_config.json",
];

/// And by beginning: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`, …
const BEGINNINGS: [&str; 2] = ["tokenizer", "chat_template"];

/// Formats of weights and archives, whatever they are called.
const NEVER: [&str; 9] = [".safetensors", ".bin", ".gguf", ".onnx", ".pt", ".pth", ".h5", ".msgpack", ".zip"];

/// Files to load.
#[derive(Debug)]
pub(crate) struct Selection {
    /// All but weights.
    pub(crate) small: Vec<Entry>,
    pub(crate) weights: Weights,
}

#[derive(Debug)]
pub(crate) enum Weights {
    /// One file.
    Single(Entry),
    /// Those that this index names.
    Index(Entry),
}

/// Chooses the files beside `config.json` that a conversion reads; one copy of the weights.
pub(crate) fn select(listing: &Listing, repository: &Repository) -> Result<Selection, HubError> {
    let mut small = Vec::new();
    for file in listing.files.iter().filter(|f| is_small(&f.name)) {
        check_plain(&file.name).map_err(|why| HubError::HostileName {
            repository: repository.id().to_owned(),
            of: "its listing".to_owned(),
            name: file.name.clone(),
            why,
        })?;
        small.push(file.clone());
    }
    let find = |name: &str| listing.files.iter().find(|f| f.name == name).cloned();
    let weights = find(SINGLE).map(Weights::Single).or_else(|| find(INDEX).map(Weights::Index));
    let Some(weights) = weights else { return Err(no_weights(listing, repository)) };
    if find("config.json").is_none() {
        let (repository, found) = (repository.id().to_owned(), top_level(listing, ".json"));
        return Err(HubError::NoCheckpoint { repository, missing: "config.json", found });
    }
    Ok(Selection { small, weights })
}

/// A file in a folder is none of them: `onnx/`, `original/` and the like are other copies.
fn is_small(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    if name.contains(['/', '\\']) || NEVER.iter().any(|end| lower.ends_with(end)) {
        return false;
    }
    NAMES.contains(&name) || BEGINNINGS.iter().any(|b| name.starts_with(b)) || name.ends_with(".model")
}

fn no_weights(listing: &Listing, repository: &Repository) -> HubError {
    let repository = repository.id().to_owned();
    let ends = |end: &str| -> Vec<String> {
        let names = listing.files.iter().map(|f| &f.name);
        names.filter(|n| n.to_ascii_lowercase().ends_with(end)).cloned().collect()
    };
    let (gguf, safetensors) = (ends(".gguf"), ends(".safetensors"));
    if !gguf.is_empty() && safetensors.is_empty() {
        return HubError::GgufOnly { repository, files: gguf };
    }
    let found = [safetensors, ends(".bin"), ends(".pth"), gguf].concat();
    HubError::NoCheckpoint { repository, missing: "model.safetensors, nor an index of several", found }
}

fn top_level(listing: &Listing, end: &str) -> Vec<String> {
    let names = listing.files.iter().map(|f| &f.name);
    names.filter(|n| !n.contains('/') && n.ends_with(end)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        let files = names.iter().map(|n| Entry { name: (*n).to_owned(), content: None }).collect();
        Listing { commit: "0".repeat(40), files }
    }

    fn pick(names: &[&str]) -> Result<Selection, HubError> {
        select(&listing(names), &"org/model".parse().unwrap())
    }

    #[test]
    fn only_what_a_conversion_reads_is_taken() {
        let taken = [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "tokenizer.model",
            "spiece.model",
            "special_tokens_map.json",
            "chat_template.jinja",
            "added_tokens.json",
        ];
        let left = [
            "README.md",
            ".gitattributes",
            "pytorch_model.bin",
            "x-q4_0.gguf",
            "consolidated.safetensors",
            "original/tokenizer.model",
            "onnx/model.onnx",
            "onnx/config.json",
            "tokenizer.bin",
            "training_args.bin",
            "params.json",
            "model.fp16.safetensors",
            "tokenizer.gguf",
            "sub\\tokenizer.json",
        ];
        let all: Vec<&str> = taken.iter().chain(&left).copied().chain([SINGLE, INDEX]).collect();
        let selection = pick(&all).unwrap();
        let small: Vec<_> = selection.small.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(small, taken);
        assert!(matches!(selection.weights, Weights::Single(f) if f.name == SINGLE));
        let selection = pick(&["config.json", INDEX, "model-00001-of-00001.safetensors"]).unwrap();
        assert!(matches!(selection.weights, Weights::Index(f) if f.name == INDEX));
    }

    #[test]
    fn what_is_no_checkpoint_is_named() {
        let gguf = pick(&["config.json", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "README.md"]).unwrap_err();
        assert!(matches!(&gguf, HubError::GgufOnly { files, .. } if files.len() == 2));
        assert!(gguf.to_string().contains("hf download org/model m-Q4_K_M.gguf"), "{gguf}");
        let torch = pick(&["config.json", "pytorch_model.bin"]).unwrap_err();
        assert!(torch.to_string().contains("pytorch_model.bin"), "{torch}");
        let mistral = pick(&["params.json", "consolidated.safetensors"]).unwrap_err();
        assert!(mistral.to_string().contains("consolidated.safetensors"), "{mistral}");
        let bare = pick(&["params.json", SINGLE]).unwrap_err();
        assert!(bare.to_string().contains("no config.json, but params.json"), "{bare}");
        assert!(matches!(pick(&[]), Err(HubError::NoCheckpoint { .. })));
    }

    #[test]
    fn odd_names_of_needed_files_are_refused() {
        let odd = pick(&["config.json", SINGLE, "tokenizer\u{202e}nosj.json"]).unwrap_err();
        assert!(matches!(odd, HubError::HostileName { .. }));
    }
}
