//! Hyperparameters.

use crate::architecture::Architecture;
use crate::rope::{Rope, RopeFactors};

/// Everything that a forward pass and a tensor map need to know of a model.
///
/// Made by [`Config::from_hf`] or [`Config::from_metadata`], which check that the parts fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in every norm.
    pub norm_eps: f32,
    /// Multiplies the embeddings.
    pub embedding_scale: f32,
    /// Logits become `cap · tanh(logit / cap)`.
    pub final_softcap: Option<f32>,
    /// The embedding is also the output matrix. A file may still hold an (optional) output matrix of its own; loading one
    /// says untied.
    pub tied_output: bool,
    /// Gemma 4 E2B, E4B: width of each layer's own embedding.
    pub per_layer_embedding: Option<usize>,
    /// Gemma 4: every layer's output is multiplied by one stored number.
    pub layer_scale: bool,
    /// Mixture of experts, in every layer.
    pub experts: Option<Experts>,
    /// Divisors of the angles of the layers with [`Rope::factors`]; `None` where no layer has them.
    pub rope_factors: Option<RopeFactors>,
    /// In the order of the forward pass.
    pub layers: Vec<Layer>,
    /// What a [`Architecture::Gemma4Assistant`] has beside its layers.
    pub assistant: Option<Assistant>,
    /// What an [`Architecture::Eagle3`] has beside its layer.
    pub eagle: Option<Eagle>,
}

/// One decoder layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// A position sees the last `window` positions, itself included; `None`: all.
    pub window: Option<u32>,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Columns of a query, key or value head.
    pub head_dim: usize,
    /// Multiplies the attention scores.
    pub attention_scale: f32,
    /// Rotation of queries and keys.
    pub rope: Rope,
    /// The earlier layer whose keys and values this one reads; `None`: it makes its own. In an assistant, whose keys and
    /// values are another model's: the first layer that reads the same ones, perhaps this one.
    pub kv_from: Option<usize>,
    /// There is no V projection: values are the K projection before its norm and rotation.
    pub v_from_k: bool,
    /// Inner width of the dense feed-forward network; `None`: experts alone.
    pub ffn: Option<usize>,
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many compute each row.
    pub top_k: usize,
    /// Inner width of one expert.
    pub ffn: usize,
    /// Weights of the chosen experts are divided by their sum.
    pub renormalize: bool,
    /// Gate and up matrix of an expert are stored as one.
    pub packed: bool,
    /// A stored number per expert multiplies its weight.
    pub scaled: bool,
}

/// What joins a drafter to its target, and how its logits are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assistant {
    /// Width of the target's residual stream.
    pub target_hidden: usize,
    /// Logits of some tokens only; `None`: of all.
    pub centroids: Option<Centroids>,
}

/// Tokens in equal groups, of which those with the best centroids get logits. `masked_embd_ordering` lists the tokens, group
/// after group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Centroids {
    /// Number of groups; divides the vocabulary.
    pub count: usize,
    /// Groups that get logits.
    pub top_k: usize,
}

/// What joins a head to its target, and which tokens it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eagle {
    /// Width of the target's residual stream.
    pub target_hidden: usize,
    /// Layers of the target, counted from 0, whose inputs are what the head reads; the number of layers stands for what
    /// the last one gives. Empty: `config.json` does not say.
    pub target_layers: Vec<usize>,
    /// Tokens that get logits: rows of the output matrix. Where they are fewer than the vocabulary, `d2t` lists them.
    pub draft_vocab: usize,
    /// What the layer adds to is the normalized input.
    pub norm_before_residual: bool,
    /// What is read of the target is normalized before it is made one.
    pub norm_before_fc: bool,
}

impl Eagle {
    /// The layers that heads read of a target of `layers` layers where their configuration does not say (SGLang, vLLM).
    pub fn usual_layers(layers: usize) -> Vec<usize> {
        vec![2, layers / 2, layers.saturating_sub(3)]
    }

    /// Width of what is read of the target.
    pub fn features(&self) -> usize {
        self.target_layers.len() * self.target_hidden
    }
}

impl Config {
    /// The scale of attention scores that metadata means when it says nothing.
    pub(crate) fn usual_attention_scale(
        architecture: Architecture,
        layers: usize,
        dims: (usize, usize, usize),
    ) -> f32 {
        let (hidden, heads, head_dim) = dims;
        // Gemma 3 27B scales by its hidden size per head, which differs from its head size; files tell it by its 62 layers.
        let of = match architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => return 1.0,
            Architecture::Gemma3 if layers == 62 => hidden / heads.max(1),
            _ => head_dim,
        };
        inverse_sqrt(of as f64)
    }
}

/// `1/√x`, rounded once.
pub(crate) fn inverse_sqrt(x: f64) -> f32 {
    (1.0 / x.sqrt()) as f32
}

/// For each layer the last earlier layer of its kind (windowed or global) among the first `owners`, if it is not one of
/// them itself. `None` if there is no such layer.
pub(crate) fn kv_sources(windows: &[Option<u32>], owners: usize) -> Option<Vec<Option<usize>>> {
    let of_kind = |w: &Option<u32>| windows[..owners].iter().rposition(|o| o.is_some() == w.is_some());
    windows
        .iter()
        .enumerate()
        .map(|(i, w)| if i < owners { Some(None) } else { of_kind(w).map(Some) })
        .collect()
}

/// For each layer the first one of its kind (windowed or global).
pub(crate) fn first_of_kind(windows: &[Option<u32>]) -> Vec<Option<usize>> {
    windows.iter().map(|w| windows.iter().position(|o| o.is_some() == w.is_some())).collect()
}
