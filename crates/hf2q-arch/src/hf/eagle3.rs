//! EAGLE-3 heads: a layer of Llama's kind, and what joins it to the target.

use super::json::Object;
use super::{Common, llama};
use crate::config::{Config, Eagle};
use crate::error::ArchError;

/// Where the `speculators` library keeps what describes the layer.
pub(super) const LAYER: &str = "transformer_layer_config";

/// The list of layers of the target.
const IDS: &str = "eagle_aux_hidden_state_layer_ids";

/// Whether the file describes a head. Its `model_type` is that of the layer.
pub(super) fn is_head(outer: &Object<'_>) -> Result<bool, ArchError> {
    let is_speculator = outer.text("speculators_model_type")? == Some("eagle3");
    let named = outer.texts("architectures")?.iter().any(|name| name.contains("Eagle3"));
    Ok(is_speculator || named)
}

pub(super) fn read(outer: &Object<'_>, text: &Object<'_>, common: Common) -> Result<Config, ArchError> {
    // The layer of a `speculators` file is a part of the whole; what describes the head is not.
    let nested = outer.object(LAYER)?.is_some();
    let (layers, hidden, vocab) = (common.layers, common.hidden, common.vocab);
    if layers != 1 {
        return Err(text.error("num_hidden_layers", layers, "1 in an EAGLE-3 head"));
    }
    text.text("model_type")?;
    outer.text("target_model_type")?;
    outer.refuse_flag("norm_output")?;
    let norm_before_residual = outer.flag("norm_before_residual")?;
    let norm_before_residual = match nested {
        true => outer.required("norm_before_residual", norm_before_residual)?,
        false => norm_before_residual.unwrap_or(false),
    };
    let eagle = Eagle {
        target_hidden: outer.size("target_hidden_size")?.unwrap_or(hidden),
        target_layers: target_layers(outer)?,
        draft_vocab: outer.size("draft_vocab_size")?.unwrap_or(vocab),
        norm_before_residual,
        norm_before_fc: outer.flag("norm_before_fc")?.unwrap_or(false),
    };
    let config = Config { tied_output: false, eagle: Some(eagle), ..llama::read(text, common)? };
    match config.layers[0].window {
        Some(window) => Err(text.error("sliding_window", window, "none in an EAGLE-3 head")),
        None => Ok(config),
    }
}

/// The layers whose inputs are read; empty where the file does not say.
fn target_layers(outer: &Object<'_>) -> Result<Vec<usize>, ArchError> {
    let top = outer.sizes(IDS)?;
    let written = outer.sizes("aux_hidden_state_layers")?;
    let Some(eagle) = outer.object("eagle_config")? else { return Ok(inputs(top.unwrap_or_default())) };
    if eagle.flag("use_aux_hidden_state")? == Some(false) {
        return Err(eagle.error("use_aux_hidden_state", false, "true in an EAGLE-3 head"));
    }
    eagle.refuse_number_unless("embedding_scale", 1.0)?;
    let ids = inputs(eagle.sizes(IDS)?.or(top).unwrap_or_default());
    let exact = eagle.sizes("target_layer_outputs_0_based")?.or(written);
    if let Some(exact) = exact {
        let exact: Vec<usize> = exact.into_iter().map(|layer| layer + 1).collect();
        if !ids.is_empty() && ids != exact {
            let accepted = format!("what the file says elsewhere, the inputs of layers {exact:?}");
            return Err(eagle.error(IDS, format!("the inputs of layers {ids:?}"), accepted));
        }
        eagle.refuse_unknown()?;
        return Ok(exact);
    }
    eagle.refuse_unknown()?;
    Ok(ids)
}

/// Files count layers in two ways: some name the layer that reads a state, some the one that writes it. A list that begins
/// with 1 names writers, as SGLang tells the two apart.
fn inputs(ids: Vec<usize>) -> Vec<usize> {
    let writers = ids.first() == Some(&1);
    ids.into_iter().map(|id| id + usize::from(writers)).collect()
}
