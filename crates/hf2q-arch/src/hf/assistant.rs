//! Drafters of Gemma 4: a text part in its form, and what joins it to the target.

use super::json::Object;
use super::{Common, gemma4};
use crate::config::{Assistant, Centroids, Config};
use crate::error::ArchError;

pub(super) fn read(outer: &Object<'_>, text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    let config = gemma4::read(text, common)?;
    if let Some(width) = config.per_layer_embedding {
        return Err(text.error("hidden_size_per_layer_input", width, "0 in an assistant"));
    }
    if config.experts.is_some() {
        return Err(text.error("enable_moe_block", true, "false in an assistant"));
    }
    if text.flag("use_double_wide_mlp")? == Some(true) {
        return Err(text.error("use_double_wide_mlp", true, "false in an assistant"));
    }
    let ordered = outer.flag("use_ordered_embeddings")?.unwrap_or(false);
    let (count, top_k) = (outer.size("num_centroids")?, outer.size("centroid_intermediate_top_k")?);
    let centroids = Centroids { count: count.unwrap_or(2048), top_k: top_k.unwrap_or(32) };
    let target_hidden = outer.size("backbone_hidden_size")?.unwrap_or(1536);
    let assistant = Assistant { target_hidden, centroids: ordered.then_some(centroids) };
    // The target caps its logits; a drafter's are compared with each other only, and `transformers` leaves them alone.
    Ok(Config { final_softcap: None, assistant: Some(assistant), ..config })
}
