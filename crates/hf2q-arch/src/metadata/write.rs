//! Configuration to metadata.

use hf2q_gguf::{Array, Metadata, Value};

use crate::architecture::Architecture;
use crate::config::{Assistant, Centroids, Config, Layer};
use crate::rope::RopeScaling;

impl Config {
    /// Writes the keys that llama.cpp reads, `general.architecture` among them, so that [`Config::from_metadata`] gives the
    /// same configuration again (the values of [`Config::rope_factors`] excepted, which are a tensor).
    pub fn to_metadata(&self, metadata: &mut Metadata) {
        let name = self.architecture.name();
        metadata.insert("general.architecture".to_owned(), Value::String(name.to_owned()));
        let mut w = Writer { metadata, config: self };
        w.model();
        w.attention();
        w.rope();
        w.experts();
        w.assistant();
        w.eagle();
    }
}

struct Writer<'a> {
    metadata: &'a mut Metadata,
    config: &'a Config,
}

impl<'a> Writer<'a> {
    fn model(&mut self) {
        let c = self.config;
        self.size("vocab_size", c.vocab);
        self.size("context_length", c.context_length);
        self.size("embedding_length", c.hidden);
        self.size("block_count", c.layers.len());
        if c.layers.iter().all(|l| l.ffn.is_some()) {
            self.per_layer("feed_forward_length", |l| l.ffn.unwrap_or(0));
        }
        if let Some(cap) = c.final_softcap {
            self.float("final_logit_softcapping", cap);
        }
        if c.architecture.is_gemma4() {
            self.size("embedding_length_per_layer_input", c.per_layer_embedding.unwrap_or(0));
        }
    }

    fn attention(&mut self) {
        let c = self.config;
        self.per_layer("attention.head_count", |l| l.heads);
        self.per_layer("attention.head_count_kv", |l| l.kv_heads);
        self.float("attention.layer_norm_rms_epsilon", c.norm_eps);
        let global = self.kind(false);
        self.size("attention.key_length", global.head_dim);
        self.size("attention.value_length", global.head_dim);
        let usual = Config::usual_attention_scale(
            c.architecture,
            c.layers.len(),
            (c.hidden, global.heads, global.head_dim),
        );
        if global.attention_scale != usual {
            self.float("attention.scale", global.attention_scale);
        }
        let window = c.layers.iter().find_map(|l| l.window);
        if let Some(window) = window {
            self.size("attention.sliding_window", window as usize);
        }
        let windowed: Vec<bool> = c.layers.iter().map(|l| l.window.is_some()).collect();
        let usual = || windowed.iter().enumerate().all(|(i, &w)| w == (i % 6 != 5));
        let needs_pattern = match c.architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => true,
            Architecture::Gemma3 => window.is_some() && !usual(),
            _ => false,
        };
        if needs_pattern {
            self.put("attention.sliding_window_pattern", Value::Array(Array::Bool(windowed)));
        }
        if c.architecture.is_gemma4() {
            let local = self.kind(true);
            self.size("attention.key_length_swa", local.head_dim);
            self.size("attention.value_length_swa", local.head_dim);
            self.size("attention.shared_kv_layers", c.layers.iter().filter(|l| l.kv_from.is_some()).count());
        }
    }

    fn rope(&mut self) {
        let (global, local) = (self.kind(false).rope, self.kind(true).rope);
        self.float("rope.freq_base", global.base);
        self.size("rope.dimension_count", global.dims);
        if self.config.architecture.is_gemma() {
            self.float("rope.freq_base_swa", local.base);
        }
        if self.config.architecture.is_gemma4() {
            self.size("rope.dimension_count_swa", local.dims);
        }
        match global.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                self.text("rope.scaling.type", "linear");
                self.float("rope.scaling.factor", factor);
            }
            RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, original_context } => {
                self.text("rope.scaling.type", "yarn");
                self.float("rope.scaling.factor", factor);
                self.size("rope.scaling.original_context_length", original_context as usize);
                let usual = [
                    ("rope.scaling.attn_factor", attention_factor, 1.0),
                    ("rope.scaling.yarn_beta_fast", beta_fast, 32.0),
                    ("rope.scaling.yarn_beta_slow", beta_slow, 1.0),
                ];
                for (key, value, _) in usual.into_iter().filter(|(_, value, usual)| value != usual) {
                    self.float(key, value);
                }
            }
        }
    }

    fn experts(&mut self) {
        let Some(e) = &self.config.experts else { return };
        self.size("expert_count", e.count);
        self.size("expert_used_count", e.top_k);
        self.size("expert_feed_forward_length", e.ffn);
        if !e.renormalize {
            self.put("expert_weights_norm", Value::Bool(false));
        }
    }

    /// The last two keys are hf2q's own: llama.cpp leaves centroids out.
    fn assistant(&mut self) {
        let Some(Assistant { target_hidden, centroids }) = self.config.assistant else { return };
        self.size("embedding_length_out", target_hidden);
        self.size("nextn_predict_layers", self.config.layers.len());
        if let Some(Centroids { count, top_k }) = centroids {
            self.size("num_centroids", count);
            self.size("centroid_intermediate_top_k", top_k);
        }
    }

    /// The size of the draft vocabulary is hf2q's own key: llama.cpp counts `d2t`.
    fn eagle(&mut self) {
        let Some(eagle) = &self.config.eagle else { return };
        let layers = eagle.target_layers.iter().map(|&layer| narrow(layer)).collect();
        self.put("target_layers", Value::Array(Array::U32(layers)));
        self.size("target_hidden_size", eagle.target_hidden);
        self.size("draft_vocab_size", eagle.draft_vocab);
        self.put("norm_before_residual", Value::Bool(eagle.norm_before_residual));
        self.put("norm_before_fc", Value::Bool(eagle.norm_before_fc));
    }

    /// A layer of a kind, or else of the other kind.
    fn kind(&self, windowed: bool) -> &'a Layer {
        let layers = &self.config.layers;
        layers.iter().find(|l| l.window.is_some() == windowed).unwrap_or(&layers[0])
    }

    fn per_layer(&mut self, key: &str, of: impl Fn(&Layer) -> usize) {
        let values: Vec<u32> = self.config.layers.iter().map(|l| narrow(of(l))).collect();
        let uniform = values.iter().all(|v| *v == values[0]);
        let value = if uniform { Value::U32(values[0]) } else { Value::Array(Array::U32(values)) };
        self.put(key, value);
    }

    fn size(&mut self, key: &str, value: usize) {
        self.put(key, Value::U32(narrow(value)));
    }

    fn float(&mut self, key: &str, value: f32) {
        self.put(key, Value::F32(value));
    }

    fn text(&mut self, key: &str, value: &str) {
        self.put(key, Value::String(value.to_owned()));
    }

    fn put(&mut self, key: &str, value: Value) {
        self.metadata.insert(format!("{}.{key}", self.config.architecture.name()), value);
    }
}

fn narrow(size: usize) -> u32 {
    u32::try_from(size).expect("validated sizes are below 2^24")
}
