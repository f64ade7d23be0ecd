//! What the architectures write their layers with: the recorder, and the weights of the current layer by name.

use std::collections::HashMap;

use hf2q_arch::{
    Activation as ArchActivation, Architecture, Config, Layer, Pairing as ArchPairing, RopeScaling,
};
use hf2q_plan::{
    Activation, CacheId, FormedKeys, GroupId, KvFormat, Norm, Pairing, PlanError, Recorder, Recording,
    RopeParams, Span, TensorId, View, Yarn,
};

use crate::gemma4::PerLayer;
use crate::model::Model;
use crate::options::RecordOptions;
use crate::{gemma3, gemma4, llama, qwen3};

/// The whole forward pass: embedding, layers, logits of the wanted rows.
pub(crate) fn record(model: &Model, options: &RecordOptions) -> Result<Recording, PlanError> {
    Ok(record_with_states(model, options)?.0)
}

/// The same, and the residual stream in front of each layer and behind the last one.
pub(crate) fn record_with_states(
    model: &Model,
    options: &RecordOptions,
) -> Result<(Recording, Vec<View>), PlanError> {
    let mut b = Builder::new(model, *options);
    let mut x = b.embed();
    let mut states = vec![x];
    b.per_layer = gemma4::per_layer_inputs(&mut b, x);
    for i in 0..b.config.layers.len() {
        b.at = i;
        x = match b.config.architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => gemma4::layer(&mut b, x),
            Architecture::Gemma3 => gemma3::layer(&mut b, x),
            // A head is recorded by `Eagle3`.
            Architecture::Llama | Architecture::Eagle3 => llama::layer(&mut b, x),
            Architecture::Qwen3 | Architecture::Qwen3Moe => qwen3::layer(&mut b, x),
        };
        states.push(x);
    }
    let logits = b.logits(x);
    Ok((b.r.finish(logits)?, states))
}

/// Where a layer keeps its keys and values.
#[derive(Clone, Copy)]
struct Caches {
    all: CacheId,
    /// Those of the last positions, if they are kept in another format.
    recent: Option<CacheId>,
}

pub(crate) struct Builder<'a> {
    /// Appends operations.
    pub(crate) r: Recorder,
    /// The hyperparameters.
    pub(crate) config: &'a Config,
    model: &'a Model,
    options: RecordOptions,
    /// Small inputs of the layers, in models that have them.
    pub(crate) per_layer: Option<PerLayer>,
    /// The layer behind whose store only wanted rows go on.
    last_store: Option<usize>,
    groups: HashMap<Span, GroupId>,
    caches: HashMap<usize, Caches>,
    at: usize,
}

impl<'a> Builder<'a> {
    /// Nothing is recorded yet.
    pub(crate) fn new(model: &'a Model, options: RecordOptions) -> Self {
        let config = model.config();
        let last_store = config.layers.iter().rposition(|l| l.kv_from.is_none());
        Self {
            r: Recorder::default(),
            config,
            model,
            options,
            per_layer: None,
            last_store: last_store.filter(|_| !options.all_rows),
            groups: HashMap::new(),
            caches: HashMap::new(),
            at: 0,
        }
    }

    /// Layer `i` becomes the current one.
    pub(crate) fn go_to(&mut self, i: usize) {
        self.at = i;
    }

    /// The current layer.
    pub(crate) fn layer(&self) -> &'a Layer {
        &self.config.layers[self.at]
    }

    /// Index of the current layer.
    pub(crate) fn index(&self) -> usize {
        self.at
    }

    /// Operations recorded from now on are named `L07.part.…`.
    pub(crate) fn part(&mut self, part: &str) {
        self.r.prefix(format!("L{:02}.{part}", self.at));
    }

    /// Operations recorded from now on are named `L07.…`.
    pub(crate) fn whole_layer(&mut self) {
        self.r.prefix(format!("L{:02}", self.at));
    }

    /// A weight of the model by its whole name.
    pub(crate) fn model_weight(&mut self, name: &str) -> TensorId {
        let weight = self.model.weight(name).expect("Model::new has found every tensor of the map");
        self.r.weight(name, weight)
    }

    /// A weight of the current layer by its name after `blk.7.`.
    pub(crate) fn weight(&mut self, name: &str) -> TensorId {
        self.model_weight(&format!("blk.{}.{name}", self.at))
    }

    /// The same for a tensor that files may lack.
    pub(crate) fn optional_weight(&mut self, name: &str) -> Option<TensorId> {
        let name = format!("blk.{}.{name}", self.at);
        self.model.tensor(&name).is_some().then(|| self.model_weight(&name))
    }

    /// A norm with the weights `blk.7.NAME.weight`.
    pub(crate) fn norm_of(&mut self, name: &str) -> Norm {
        Norm { weight: Some(self.weight(&format!("{name}.weight"))), eps: self.config.norm_eps }
    }

    /// A norm without weights.
    pub(crate) fn plain_norm(&self) -> Norm {
        Norm { weight: None, eps: self.config.norm_eps }
    }

    /// Normalizes rows with `blk.7.NAME.weight`.
    pub(crate) fn norm(&mut self, op: &str, x: View, name: &str) -> View {
        let norm = self.norm_of(name);
        self.r.rms_norm(op, x, norm)
    }

    /// Multiplies rows with the matrix `blk.7.NAME.weight`.
    pub(crate) fn linear(&mut self, op: &str, x: View, name: &str) -> View {
        let weight = self.weight(&format!("{name}.weight"));
        self.r.mat_mul(op, x, weight)
    }

    /// The non-linearity of the feed-forward network.
    pub(crate) fn activation(&self) -> Activation {
        match self.config.architecture.activation() {
            ArchActivation::GeluTanh => Activation::GeluTanh,
            ArchActivation::Silu => Activation::Silu,
        }
    }

    /// Rotates the heads of the current layer.
    pub(crate) fn rope(&mut self, op: &str, x: View) -> View {
        let (head_dim, rope) = (self.layer().head_dim, self.rope_params());
        self.r.rope(op, x, head_dim, rope)
    }

    fn rope_params(&mut self) -> RopeParams {
        let rope = self.layer().rope;
        let pairing = match self.config.architecture.pairing() {
            ArchPairing::Halves => Pairing::Halves,
            ArchPairing::Adjacent => Pairing::Adjacent,
        };
        let yarn = match rope.scaling {
            RopeScaling::Yarn { beta_fast, beta_slow, original_context, .. } => {
                Some(Yarn { ext_factor: 1.0, beta_fast, beta_slow, original_context })
            }
            RopeScaling::None | RopeScaling::Linear { .. } => None,
        };
        RopeParams {
            dims: rope.dims,
            pairing,
            base: rope.base,
            freq_scale: rope.scaling.freq_scale(),
            factors: rope.factors.then(|| self.model_weight("rope_freqs.weight")),
            yarn,
            magnitude: rope.scaling.magnitude(),
        }
    }

    /// Pairs of the current layer that turn at some position: the first ones.
    fn turning_pairs(&self) -> usize {
        /// A factor by which no angle is left: files mark pairs that do not turn with 1e30.
        const HUGE: f32 = 1e22;
        let rope = self.layer().rope;
        let factors = rope.factors.then(|| self.model.tensor("rope_freqs.weight")).flatten();
        match factors {
            // Every pair is multiplied by the magnitude.
            Some(factors) if rope.scaling.magnitude() == 1.0 => {
                let (factors, _) = factors.data.as_chunks::<4>();
                let turns = |&f: &[u8; 4]| f32::from_le_bytes(f) < HUGE;
                factors.iter().rposition(turns).map_or(0, |last| last + 1)
            }
            _ => rope.dims / 2,
        }
    }

    /// What goes on beside the keys and values of the current layer, given the residual stream and the layer's normalized
    /// input. After the last layer that stores some, nothing reads a row again whose logits nobody wants.
    pub(crate) fn wanted(&mut self, mut x: View, mut h: View) -> (View, View) {
        if self.last_store == Some(self.at) {
            x = self.r.select_rows("select_residual", x);
            h = self.r.select_rows("select_input", h);
            self.per_layer = self.per_layer.map(|inputs| inputs.wanted(&mut self.r, self.at));
        }
        (x, h)
    }

    /// Stores the values of the current layer, and its keys where they are not formed of them.
    pub(crate) fn store(&mut self, k: Option<View>, v: View) {
        let Caches { all, recent } = self.caches();
        for (name, cache) in [("kv_store", Some(all)), ("kv_store_recent", recent)] {
            match (cache, k) {
                (Some(cache), Some(k)) => self.r.kv_store(name, k, v, cache),
                (Some(cache), None) => self.r.value_store(name, v, cache),
                (None, _) => {}
            }
        }
    }

    /// Stores keys and values of another model, which the current layer of an assistant reads, and later ones of its kind. Rows
    /// ask from one position further on, and `transformers` lets them see what is up to a whole window away from there.
    pub(crate) fn store_of_target(&mut self, k: View, v: View) {
        let Layer { window, kv_heads, head_dim, .. } = *self.layer();
        let (name, formats) = (if window.is_some() { "sliding" } else { "global" }, self.formats());
        let group = self.group(name, window.map(|n| n.saturating_add(1)).into());
        self.whole_layer();
        let all = self.r.cache(group, kv_heads, head_dim, formats);
        self.caches.insert(self.at, Caches { all, recent: None });
        self.part("attn");
        self.r.kv_store("kv_store", k, v, all);
    }

    /// The cache that the current layer reads: its own, or that of the layer whose keys and values it shares.
    pub(crate) fn cache(&mut self) -> CacheId {
        self.caches().all
    }

    fn caches(&mut self) -> Caches {
        let owner = self.layer().kv_from.unwrap_or(self.at);
        if let Some(&caches) = self.caches.get(&owner) {
            return caches;
        }
        let Layer { window, kv_heads, head_dim, .. } = *self.layer();
        let (name, formats) = (if window.is_some() { "sliding" } else { "global" }, self.formats());
        let group = self.group(name, window.into());
        let formed = self.forms_keys().then(|| FormedKeys {
            weight: self.norm_of("attn_k_norm").weight,
            rope: self.rope_params(),
            pairs: self.turning_pairs(),
        });
        self.whole_layer();
        let all = match (formed, self.config.architecture) {
            (Some(keys), _) => self.r.value_cache(group, kv_heads, head_dim, (formats.0, keys)),
            (None, Architecture::Gemma4) => self.r.unit_cache(group, kv_heads, head_dim, formats),
            (None, _) => self.r.cache(group, kv_heads, head_dim, formats),
        };
        let recent = self.options.recent_formats(formats).map(|exact| {
            let group = self.group("recent", Span::Pages(1));
            self.r.recent_cache(all, group, exact)
        });
        self.part("attn");
        let caches = Caches { all, recent };
        self.caches.insert(owner, caches);
        caches
    }

    /// The group of caches of which rows see these positions.
    fn group(&mut self, name: &str, span: Span) -> GroupId {
        *self.groups.entry(span).or_insert_with(|| self.r.group(name, span))
    }

    /// Whether the current layer stores one vector of which it makes keys and values: they come from one projection, and
    /// both are to be kept in one format.
    pub(crate) fn forms_keys(&self) -> bool {
        let (k, v) = self.formats();
        self.layer().v_from_k && k == v
    }

    /// How keys and values of the current layer are stored.
    fn formats(&self) -> (KvFormat, KvFormat) {
        match self.layer().window {
            Some(_) => self.options.sliding,
            None => self.options.global,
        }
    }

    fn embed(&mut self) -> View {
        let table = self.model_weight("token_embd.weight");
        self.r.embed("embed", table, self.config.embedding_scale)
    }

    fn logits(&mut self, x: View) -> View {
        self.r.prefix("");
        let x = match self.last_store {
            Some(_) => x,
            None => self.r.select_rows("select_rows", x),
        };
        let weight = Some(self.model_weight("output_norm.weight"));
        let x = self.r.rms_norm("output_norm", x, Norm { weight, eps: self.config.norm_eps });
        let matrix = if self.config.tied_output { "token_embd.weight" } else { "output.weight" };
        let matrix = self.model_weight(matrix);
        let logits = self.r.mat_mul("output", x, matrix);
        match self.config.final_softcap {
            Some(cap) => self.r.soft_cap("soft_cap", logits, cap),
            None => logits,
        }
    }
}
