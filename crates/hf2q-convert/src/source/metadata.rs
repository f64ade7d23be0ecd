//! Metadata of a converted checkpoint.

use hf2q_arch::Config;
use hf2q_gguf::{Metadata, Value};

use super::target::Target;
use crate::error::ConvertError;
use crate::folder::Folder;
use crate::tokenizer;

/// Everything but what depends on the types of the tensors.
pub(super) fn of_checkpoint(
    folder: &Folder,
    config: &Config,
    target: Option<&Target>,
) -> Result<Metadata, ConvertError> {
    let mut metadata = Metadata::default();
    let mut put = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    put("general.type", Value::String("model".to_owned()));
    if let Some(name) = folder.name() {
        put("general.name", Value::String(name));
    }
    config.to_metadata(&mut metadata);
    sampling(folder, &mut metadata)?;
    // A drafter speaks its target's tokens, whether or not it brings a tokenizer.
    match target {
        Some(target) => target.tokens((folder, config), &mut metadata)?,
        None if config.architecture.is_drafter() && !tokenizer::is_there(folder) => {}
        None => tokenizer::write(folder, config, &mut metadata)?,
    }
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
