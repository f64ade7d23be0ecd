//! Configuration from the `config.json` of a checkpoint.
//!
//! Every key is either read, or known not to change results, or refused: a key that nothing here understands could ask for
//! a model that this crate does not describe.

mod assistant;
mod eagle3;
mod gemma3;
mod gemma4;
mod ignored;
mod json;
mod llama;
mod qwen3;
mod rope;

use serde_json::Value;

use crate::architecture::{Architecture, accepted_model_types};
use crate::config::Config;
use crate::error::{ArchError, Origin};
use crate::validate::validate;
use json::Object;

impl Config {
    /// Reads the text part of a model's `config.json`; defaults are those of the `transformers` library.
    ///
    /// # Errors
    /// If the model is of an unknown family, or a key is missing, malformed, unknown, or asks for something that is not
    /// implemented; the key is named.
    pub fn from_hf(config_json: &Value) -> Result<Self, ArchError> {
        let outer = Object::new(config_json, "")?;
        let inner = match outer.object("text_config")? {
            Some(text) => Some(text),
            None => outer.object(eagle3::LAYER)?,
        };
        let text = inner.as_ref().unwrap_or(&outer);
        let architecture = architecture(&outer, text)?;
        let common = Common::read(architecture, &outer, text)?;
        let config = match architecture {
            Architecture::Gemma4 => gemma4::read(text, common)?,
            Architecture::Gemma4Assistant => assistant::read(&outer, text, common)?,
            Architecture::Eagle3 => eagle3::read(&outer, text, common)?,
            Architecture::Gemma3 => gemma3::read(text, common)?,
            Architecture::Llama => llama::read(text, common)?,
            Architecture::Qwen3 | Architecture::Qwen3Moe => qwen3::read(text, common)?,
        };
        let keys: Vec<String> =
            text.unknown().into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if !keys.is_empty() {
            return Err(ArchError::UnknownKeys { architecture: architecture.name(), keys });
        }
        validate(&config, Origin::ConfigJson)?;
        Ok(config)
    }
}

fn architecture(outer: &Object<'_>, text: &Object<'_>) -> Result<Architecture, ArchError> {
    const KEY: &str = "model_type";
    if eagle3::is_head(outer)? {
        return Ok(Architecture::Eagle3);
    }
    // The text part of an assistant calls itself a Gemma 4.
    let whole = outer.text(KEY)?.and_then(Architecture::from_model_type);
    if whole == Some(Architecture::Gemma4Assistant) {
        return Ok(Architecture::Gemma4Assistant);
    }
    let found = match text.text(KEY)? {
        Some(name) => name,
        None => outer.required(KEY, outer.text(KEY)?)?,
    };
    Architecture::from_model_type(found).ok_or_else(|| ArchError::UnknownArchitecture {
        origin: Origin::ConfigJson,
        key: KEY,
        found: found.to_owned(),
        accepted: accepted_model_types(),
    })
}

/// What all families name alike.
struct Common {
    architecture: Architecture,
    hidden: usize,
    ffn: usize,
    layers: usize,
    heads: usize,
    vocab: usize,
    norm_eps: f32,
    tied_output: bool,
}

impl Common {
    fn read(architecture: Architecture, outer: &Object<'_>, text: &Object<'_>) -> Result<Self, ArchError> {
        let gemma = architecture.is_gemma();
        let activation = if gemma { "gelu_pytorch_tanh" } else { "silu" };
        for key in ["hidden_activation", "hidden_act"] {
            text.refuse_text_unless(key, activation)?;
        }
        for key in ["attention_bias", "mlp_bias", "rope_interleaved"] {
            text.refuse_flag(key)?;
        }
        let usual_vocab = match architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => Some(262_144),
            Architecture::Gemma3 => Some(262_208),
            _ => None,
        };
        let usual_heads = if gemma { Some(8) } else { None };
        let tied = match text.flag("tie_word_embeddings")? {
            Some(tied) => tied,
            None => outer.flag("tie_word_embeddings")?.unwrap_or(gemma),
        };
        Ok(Self {
            architecture,
            hidden: text.required_size("hidden_size")?,
            ffn: text.required_size("intermediate_size")?,
            layers: text.required_layers("num_hidden_layers")?,
            heads: text.required("num_attention_heads", text.size("num_attention_heads")?.or(usual_heads))?,
            vocab: text.required("vocab_size", text.size("vocab_size")?.or(usual_vocab))?,
            norm_eps: text.number("rms_norm_eps")?.unwrap_or(1e-6),
            tied_output: tied,
        })
    }

    /// A configuration of these parts, without the optional ones of some families.
    fn config(self, context_length: usize, layers: Vec<crate::config::Layer>) -> Config {
        Config {
            architecture: self.architecture,
            vocab: self.vocab,
            hidden: self.hidden,
            context_length,
            norm_eps: self.norm_eps,
            embedding_scale: self.architecture.embedding_scale(self.hidden),
            final_softcap: None,
            tied_output: self.tied_output,
            per_layer_embedding: None,
            layer_scale: false,
            experts: None,
            rope_factors: None,
            layers,
            assistant: None,
            eagle: None,
        }
    }
}
