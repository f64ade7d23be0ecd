//! The tensor map: every tensor of a model, with its name on both sides.

use crate::architecture::{Architecture, Pairing};
use crate::config::{Assistant, Config, Eagle, Experts, Layer};

/// One tensor of a GGUF file, and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorRow {
    /// Name in the GGUF file.
    pub gguf: String,
    /// In GGUF order: columns (`n_in`) first, then rows (`n_out`), then experts.
    pub shape: Vec<usize>,
    /// What quantization recipes select on.
    pub class: Class,
    /// Where its values come from when a checkpoint is converted.
    pub source: Source,
    /// A file or checkpoint without it is complete.
    pub optional: bool,
}

/// What a tensor is for; recipes select on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A table of which a token reads one row: token embedding (also the output matrix where that is tied) and per-layer embedding.
    Embedding,
    /// The output matrix, where it is stored.
    Output,
    /// Weights of a norm; always f32.
    Norm,
    /// A matrix that every row is multiplied with.
    Matrix(Role),
    /// A stack of matrices, one for each expert.
    Expert(Role),
    /// Scores of the experts: small and sensitive, always f32.
    Router,
    /// Single numbers and vectors that are no norm's weights; always f32.
    Scalar,
    /// Numbers of tokens; always i32, each below the vocabulary.
    Tokens,
    /// The token of each logit; always i64, each below the vocabulary and none twice.
    DraftTokens,
}

/// Place of a matrix in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Query projection.
    AttnQ,
    /// Key projection (and value projection where there is no other).
    AttnK,
    /// Value projection.
    AttnV,
    /// Projection of the attended values.
    AttnOutput,
    /// Gate of the feed-forward network.
    FfnGate,
    /// Up projection of the feed-forward network.
    FfnUp,
    /// Gate and up projection in one matrix, gate first.
    FfnGateUp,
    /// Down projection of the feed-forward network.
    FfnDown,
    /// Gate of the per-layer embedding.
    PerLayerGate,
    /// Projection of the per-layer embedding to the residual stream.
    PerLayerOutput,
    /// Projection of the embedding to all layers' per-layer embeddings. Llama.cpp never quantizes it.
    PerLayerModel,
    /// Of an assistant: what the target knows to the assistant's width.
    FromTarget,
    /// Of an assistant: its hidden state to the target's width.
    ToTarget,
    /// Of a head: what is read of several layers of the target to the head's width.
    Fuse,
}

/// Where the values of a tensor come from. Names are those of a text-only checkpoint (`model.layers.0. …`).
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// One tensor of the checkpoint.
    Hf {
        /// Its name.
        name: String,
        /// What is done to it.
        transform: Transform,
    },
    /// Equal matrices, one for each expert, in this order.
    Stack {
        /// Their names.
        names: Vec<String>,
    },
    /// Values that the configuration determines; empty if the configuration was read from a GGUF file, which holds them.
    Computed(Vec<f32>),
}

/// What is done to a checkpoint tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    None,
    /// Adds 1: checkpoints of Gemma 3 store a norm's weight minus 1.
    AddOne,
    /// Integers that are counted from their own position: value `i` becomes `i` more.
    AddIndex,
    /// Within each head, row `i` of the first half becomes row `2i`, row `i` of the second half row `2i + 1`: the file keeps
    /// rotated pairs side by side.
    PermuteRope {
        /// Heads of the matrix.
        heads: usize,
        /// Rows of a head.
        head_dim: usize,
    },
}

impl TensorRow {
    /// Names of the checkpoint tensors it is made of.
    pub fn source_names(&self) -> impl Iterator<Item = &str> {
        let names = match &self.source {
            Source::Hf { name, .. } => std::slice::from_ref(name),
            Source::Stack { names } => names.as_slice(),
            Source::Computed(_) => &[],
        };
        names.iter().map(String::as_str)
    }
}

impl Config {
    /// Every tensor of the model, in the order in which files hold them.
    pub fn tensors(&self) -> Vec<TensorRow> {
        let mut map = Map { config: self, rows: Vec::new() };
        map.model();
        for (i, layer) in self.layers.iter().enumerate() {
            let hf = match self.eagle {
                Some(_) => "midlayer.".to_owned(),
                None => format!("model.layers.{i}."),
            };
            LayerMap { map: &mut map, gguf: format!("blk.{i}."), hf }.layer(layer);
        }
        map.rows
    }
}

impl Config {
    /// Whether a checkpoint may hold this tensor although the model does without: projections of layers that read another
    /// layer's keys and values, and frequencies of the rotation, which the configuration determines.
    pub fn ignores(&self, name: &str) -> bool {
        // `t2d` says of each token whether it is in the list `d2t`.
        if name.ends_with("rotary_emb.inv_freq") || (self.eagle.is_some() && name == "t2d") {
            return true;
        }
        let Some((layer, part)) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'))
        else {
            return false;
        };
        let shares = |i: usize| self.layers.get(i).is_some_and(|l| l.kv_from.is_some());
        let of_kv = ["k_proj", "v_proj", "k_norm", "v_norm"].map(|p| format!("self_attn.{p}.weight"));
        layer.parse().is_ok_and(shares) && of_kv.iter().any(|p| p == part)
    }
}

struct Map<'a> {
    config: &'a Config,
    rows: Vec<TensorRow>,
}

impl Map<'_> {
    fn model(&mut self) {
        let c = self.config;
        if let Some(eagle) = &c.eagle {
            return self.eagle(eagle);
        }
        self.add(
            "token_embd.weight",
            &[c.hidden, c.vocab],
            Class::Embedding,
            hf("model.embed_tokens.weight"),
        );
        self.add("output.weight", &[c.hidden, c.vocab], Class::Output, hf("lm_head.weight"));
        self.last().optional = c.tied_output;
        self.norm("output_norm.weight", c.hidden, "model.norm.weight".to_owned());
        self.rope_factors();
        if let Some(width) = c.per_layer_embedding {
            let all = width * c.layers.len();
            let table = hf("model.embed_tokens_per_layer.weight");
            self.add("per_layer_token_embd.weight", &[all, c.vocab], Class::Embedding, table);
            let projection = hf("model.per_layer_model_projection.weight");
            let class = Class::Matrix(Role::PerLayerModel);
            self.add("per_layer_model_proj.weight", &[c.hidden, all], class, projection);
            self.norm(
                "per_layer_proj_norm.weight",
                width,
                "model.per_layer_projection_norm.weight".to_owned(),
            );
        }
        if let Some(assistant) = &c.assistant {
            self.assistant(assistant);
        }
    }

    fn assistant(&mut self, a: &Assistant) {
        let (hidden, vocab) = (self.config.hidden, self.config.vocab);
        for (gguf, shape, role, name) in [
            ("nextn.pre_projection", [2 * a.target_hidden, hidden], Role::FromTarget, "pre_projection"),
            ("nextn.post_projection", [hidden, a.target_hidden], Role::ToTarget, "post_projection"),
        ] {
            let source = hf(format!("{name}.weight"));
            self.add(&format!("{gguf}.weight"), &shape, Class::Matrix(role), source);
        }
        if let Some(c) = a.centroids {
            let source = hf("masked_embedding.centroids.weight");
            self.add("masked_embd_centroids.weight", &[hidden, c.count], Class::Router, source);
            let source = hf("masked_embedding.token_ordering");
            self.add("masked_embd_ordering", &[vocab], Class::Tokens, source);
        }
    }

    /// Everything but the layer. An embedding that is not there is the target's.
    fn eagle(&mut self, e: &Eagle) {
        let c = self.config;
        self.add("token_embd.weight", &[c.hidden, c.vocab], Class::Embedding, hf("embed_tokens.weight"));
        self.last().optional = true;
        self.add("output.weight", &[c.hidden, e.draft_vocab], Class::Output, hf("lm_head.weight"));
        self.norm("output_norm.weight", c.hidden, "norm.weight".to_owned());
        self.rope_factors();
        self.add("fc.weight", &[e.features(), c.hidden], Class::Matrix(Role::Fuse), hf("fc.weight"));
        if e.norm_before_fc {
            self.norm("enc.output_norm.weight", e.features(), "input_norm.weight".to_owned());
        }
        if e.draft_vocab < c.vocab {
            let source = Source::Hf { name: "d2t".to_owned(), transform: Transform::AddIndex };
            self.add("d2t", &[e.draft_vocab], Class::DraftTokens, source);
        }
    }

    fn rope_factors(&mut self) {
        let with_factors = self.config.layers.iter().find(|l| l.rope.factors);
        if let (Some(factors), Some(layer)) = (&self.config.rope_factors, with_factors) {
            let source = Source::Computed(factors.values());
            self.add("rope_freqs.weight", &[layer.rope.dims / 2], Class::Scalar, source);
        }
    }

    fn add(&mut self, gguf: &str, shape: &[usize], class: Class, source: Source) {
        let shape = shape.to_vec();
        self.rows.push(TensorRow { gguf: gguf.to_owned(), shape, class, source, optional: false });
    }

    fn norm(&mut self, gguf: &str, len: usize, name: String) {
        let minus_one = self.config.architecture == Architecture::Gemma3;
        let transform = if minus_one { Transform::AddOne } else { Transform::None };
        self.add(gguf, &[len], Class::Norm, Source::Hf { name, transform });
    }

    fn last(&mut self) -> &mut TensorRow {
        self.rows.last_mut().expect("called after add")
    }
}

fn hf(name: impl Into<String>) -> Source {
    Source::Hf { name: name.into(), transform: Transform::None }
}

/// Adds the tensors of one layer.
struct LayerMap<'a, 'b> {
    map: &'a mut Map<'b>,
    gguf: String,
    hf: String,
}

impl LayerMap<'_, '_> {
    fn layer(&mut self, layer: &Layer) {
        let c = self.map.config;
        self.attention(layer);
        let gemma = c.architecture.is_gemma();
        if gemma {
            self.norm("post_attention_norm", c.hidden, "post_attention_layernorm");
        }
        let before_ffn = if gemma { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
        self.norm("ffn_norm", c.hidden, before_ffn);
        if let Some(width) = layer.ffn {
            self.matrix("ffn_gate", [c.hidden, width], Role::FfnGate, "mlp.gate_proj");
            self.matrix("ffn_up", [c.hidden, width], Role::FfnUp, "mlp.up_proj");
            self.matrix("ffn_down", [width, c.hidden], Role::FfnDown, "mlp.down_proj");
        }
        match &c.experts {
            Some(e) if gemma => self.gemma_experts(e),
            Some(e) => self.experts(e),
            None => {}
        }
        if gemma {
            self.norm("post_ffw_norm", c.hidden, "post_feedforward_layernorm");
        }
        if let Some(width) = c.per_layer_embedding {
            self.matrix("inp_gate", [c.hidden, width], Role::PerLayerGate, "per_layer_input_gate");
            self.matrix("proj", [width, c.hidden], Role::PerLayerOutput, "per_layer_projection");
            self.norm("post_norm", c.hidden, "post_per_layer_input_norm");
        }
        if c.layer_scale {
            self.add("layer_output_scale.weight", &[1], Class::Scalar, "layer_scalar");
            self.map.last().optional = true;
        }
    }

    fn attention(&mut self, l: &Layer) {
        let c = self.map.config;
        let (q, kv) = (l.heads * l.head_dim, l.kv_heads * l.head_dim);
        self.norm("attn_norm", c.hidden, "input_layernorm");
        let mut read = c.hidden;
        if c.eagle.is_some() {
            // Embedding and state lie side by side, each with its norm.
            self.norm("attn_norm_2", c.hidden, "hidden_norm");
            read *= 2;
        }
        self.rotated("attn_q", [read, l.heads], (l.head_dim, Role::AttnQ), "self_attn.q_proj");
        if l.kv_from.is_none() {
            self.rotated("attn_k", [read, l.kv_heads], (l.head_dim, Role::AttnK), "self_attn.k_proj");
            if !l.v_from_k {
                self.matrix("attn_v", [read, kv], Role::AttnV, "self_attn.v_proj");
            }
        }
        self.matrix("attn_output", [q, c.hidden], Role::AttnOutput, "self_attn.o_proj");
        if c.architecture.has_head_norms() {
            self.norm("attn_q_norm", l.head_dim, "self_attn.q_norm");
            if l.kv_from.is_none() {
                self.norm("attn_k_norm", l.head_dim, "self_attn.k_norm");
            }
        }
    }

    /// Gemma 4: experts beside the dense network, each side with its norms.
    fn gemma_experts(&mut self, e: &Experts) {
        let hidden = self.map.config.hidden;
        self.add("ffn_gate_inp.weight", &[hidden, e.count], Class::Router, "router.proj.weight");
        self.add("ffn_gate_inp.scale", &[hidden], Class::Scalar, "router.scale");
        self.norm("pre_ffw_norm_2", hidden, "pre_feedforward_layernorm_2");
        self.norm("post_ffw_norm_1", hidden, "post_feedforward_layernorm_1");
        self.norm("post_ffw_norm_2", hidden, "post_feedforward_layernorm_2");
        if e.packed {
            let shape = [hidden, 2 * e.ffn, e.count];
            let class = Class::Expert(Role::FfnGateUp);
            self.add("ffn_gate_up_exps.weight", &shape, class, "experts.gate_up_proj");
        } else {
            self.stack("ffn_gate_exps", [hidden, e.ffn, e.count], Role::FfnGate, "experts.{}.gate_proj");
            self.stack("ffn_up_exps", [hidden, e.ffn, e.count], Role::FfnUp, "experts.{}.up_proj");
        }
        let shape = [e.ffn, hidden, e.count];
        self.add("ffn_down_exps.weight", &shape, Class::Expert(Role::FfnDown), "experts.down_proj");
        if e.scaled {
            self.add("ffn_down_exps.scale", &[e.count], Class::Scalar, "router.per_expert_scale");
        }
    }

    fn experts(&mut self, e: &Experts) {
        let hidden = self.map.config.hidden;
        self.add("ffn_gate_inp.weight", &[hidden, e.count], Class::Router, "mlp.gate.weight");
        self.stack("ffn_gate_exps", [hidden, e.ffn, e.count], Role::FfnGate, "mlp.experts.{}.gate_proj");
        self.stack("ffn_up_exps", [hidden, e.ffn, e.count], Role::FfnUp, "mlp.experts.{}.up_proj");
        self.stack("ffn_down_exps", [e.ffn, hidden, e.count], Role::FfnDown, "mlp.experts.{}.down_proj");
    }

    fn norm(&mut self, gguf: &str, len: usize, name: &str) {
        let (gguf, name) = (format!("{}{gguf}.weight", self.gguf), format!("{}{name}.weight", self.hf));
        self.map.norm(&gguf, len, name);
    }

    fn matrix(&mut self, gguf: &str, shape: [usize; 2], role: Role, name: &str) {
        self.add(&format!("{gguf}.weight"), &shape, Class::Matrix(role), &format!("{name}.weight"));
    }

    /// A projection whose heads are rotated: its shape is `[columns, heads]` heads of `head_dim` rows.
    fn rotated(&mut self, gguf: &str, shape: [usize; 2], (head_dim, role): (usize, Role), name: &str) {
        let [cols, heads] = shape;
        self.matrix(gguf, [cols, heads * head_dim], role, name);
        if self.map.config.architecture.pairing() == Pairing::Adjacent
            && let Source::Hf { transform, .. } = &mut self.map.last().source
        {
            *transform = Transform::PermuteRope { heads, head_dim };
        }
    }

    fn stack(&mut self, gguf: &str, shape: [usize; 3], role: Role, name: &str) {
        let one = |e: usize| format!("{}{}.weight", self.hf, name.replace("{}", &e.to_string()));
        let names = (0..shape[2]).map(one).collect();
        let gguf = format!("{}{gguf}.weight", self.gguf);
        self.map.add(&gguf, &shape, Class::Expert(role), Source::Stack { names });
    }

    fn add(&mut self, gguf: &str, shape: &[usize], class: Class, name: &str) {
        let (gguf, name) = (format!("{}{gguf}", self.gguf), format!("{}{name}", self.hf));
        self.map.add(&gguf, shape, class, hf(name));
    }
}
