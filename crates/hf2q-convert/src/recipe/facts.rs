//! What of a model decides types.

use hf2q_arch::{Architecture, Config};

/// The hyperparameters that recipes look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The family.
    pub architecture: Architecture,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads that read one key and value head, in the first layer.
    pub heads_per_kv: usize,
    /// Experts of a layer; 0: the model has none.
    pub experts: usize,
}

impl Facts {
    /// The facts of a model.
    pub fn from_config(config: &Config) -> Self {
        let heads_per_kv = config.layers.first().map_or(1, |l| l.heads / l.kv_heads.max(1));
        Self {
            architecture: config.architecture,
            layers: config.layers.len(),
            heads_per_kv,
            experts: config.experts.as_ref().map_or(0, |e| e.count),
        }
    }

    /// Llama 70B and what has its shape: `attn_v` is an eighth of `attn_q`, so 5 bits for it are nearly free.
    pub(super) fn is_llama_70b(self) -> bool {
        self.architecture == Architecture::Llama
            && self.layers == 80
            && self.heads_per_kv != 1
            && self.experts != 8
    }
}
