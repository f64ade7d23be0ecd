//! What a model writes its layers with: each call appends one operation and returns its output.

use std::collections::HashMap;

use crate::error::PlanError;
use crate::formed::FormedKeys;
use crate::kv::KvFormat;
use crate::op::*;
use crate::plan::{NamedOp, Recording};
use crate::span::Span;
use crate::tensor::{Cache, CacheId, Group, GroupId, RowKind, Tensor, TensorId, TensorKind, View, Weight};

/// What a norm divides and multiplies by.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// Per-column f32 weights; `None`: all ones.
    pub weight: Option<TensorId>,
    /// Added to the mean square.
    pub eps: f32,
}

/// Parameters of [`Recorder::attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionParams {
    /// Query heads.
    pub heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// Collects the operations of one recording.
///
/// Operation names are `prefix.name`; the prefix is set by [`Recorder::prefix`]. Mistakes (widths that do not fit)
/// are found by [`Recorder::finish`].
#[derive(Debug, Default)]
pub struct Recorder {
    tensors: Vec<Tensor>,
    ops: Vec<NamedOp>,
    weights: Vec<TensorId>,
    by_name: HashMap<String, TensorId>,
    groups: Vec<Group>,
    caches: Vec<Cache>,
    /// Widths of inputs.
    inputs: Vec<usize>,
    cache_tensors: Vec<TensorId>,
    /// By cache: where its last positions are kept a second time.
    recent: Vec<Option<CacheId>>,
    prefix: String,
}

impl Recorder {
    /// Operations recorded from now on are named `prefix.…`; an empty prefix leaves names as they are.
    pub fn prefix(&mut self, prefix: impl Into<String>) {
        self.prefix = prefix.into();
    }

    /// The weight with a GGUF name; declaring it again returns the same tensor.
    pub fn weight(&mut self, name: &str, weight: Weight) -> TensorId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = self.tensor(name.to_owned(), TensorKind::Weight(weight));
        self.by_name.insert(name.to_owned(), id);
        self.weights.push(id);
        id
    }

    /// Adds a group of caches that share page tables.
    pub fn group(&mut self, name: &str, span: impl Into<Span>) -> GroupId {
        self.groups.push(Group { name: name.to_owned(), span: span.into() });
        GroupId(index(self.groups.len() - 1))
    }

    /// Adds the cache of a layer; its name gets the prefix.
    pub fn cache(
        &mut self,
        group: GroupId,
        kv_heads: usize,
        head_dim: usize,
        formats: (KvFormat, KvFormat),
    ) -> CacheId {
        let (k_format, v_format) = formats;
        let (unit_values, formed_keys) = (false, None);
        let name = self.full_name("kv");
        self.push_cache(Cache {
            name,
            group,
            kv_heads,
            head_dim,
            k_format,
            v_format,
            unit_values,
            formed_keys,
        })
    }

    /// The same for values that a norm without weights has made.
    pub fn unit_cache(
        &mut self,
        group: GroupId,
        kv_heads: usize,
        head_dim: usize,
        formats: (KvFormat, KvFormat),
    ) -> CacheId {
        let id = self.cache(group, kv_heads, head_dim, formats);
        self.caches[id.index()].unit_values = true;
        id
    }

    /// The same for one vector in place of two: values, of which `keys` says how keys are made.
    pub fn value_cache(
        &mut self,
        group: GroupId,
        kv_heads: usize,
        head_dim: usize,
        (format, keys): (KvFormat, FormedKeys),
    ) -> CacheId {
        let id = self.unit_cache(group, kv_heads, head_dim, (format, format));
        self.caches[id.index()].formed_keys = Some(keys);
        id
    }

    /// Adds a cache of the last positions of another one, in other formats; [`Recorder::attention`] to that one reads both,
    /// and both are to be stored to. `group` sees whole pages.
    pub fn recent_cache(
        &mut self,
        of: CacheId,
        group: GroupId,
        (k_format, v_format): (KvFormat, KvFormat),
    ) -> CacheId {
        let name = self.full_name("kv_recent");
        let id =
            self.push_cache(Cache { name, group, k_format, v_format, ..self.caches[of.index()].clone() });
        self.recent[of.index()] = Some(id);
        id
    }

    fn push_cache(&mut self, cache: Cache) -> CacheId {
        let id = CacheId(index(self.caches.len()));
        let tensor = self.tensor(cache.name.clone(), TensorKind::Cache(id));
        self.caches.push(cache);
        self.cache_tensors.push(tensor);
        self.recent.push(None);
        id
    }

    /// Appends an [`Embed`] of the step's tokens.
    pub fn embed(&mut self, name: &str, table: TensorId, scale: f32) -> View {
        let width = self.cols(table);
        let out = self.activation(name, RowKind::Step, width);
        self.push(name, Op::Embed(Embed { table, out, scale }));
        out
    }

    /// Appends an [`Input`] of `width` values for each row of the step.
    pub fn input(&mut self, name: &str, width: usize) -> View {
        let out = self.activation(name, RowKind::Step, width);
        self.inputs.push(width);
        self.push(name, Op::Input(Input { index: self.inputs.len() - 1, out }));
        out
    }

    /// Appends an [`RmsNorm`] over the whole row.
    pub fn rms_norm(&mut self, name: &str, x: View, norm: Norm) -> View {
        self.head_norm(name, x, norm, x.width)
    }

    /// An activation `[R, width]` whose columns operations will write in parts ([`Recorder::rms_norm_to`]).
    pub fn in_parts(&mut self, name: &str, width: usize) -> View {
        self.activation(name, RowKind::Step, width)
    }

    /// Appends an [`RmsNorm`] over the whole row that writes columns of [`Recorder::in_parts`].
    pub fn rms_norm_to(&mut self, name: &str, x: View, norm: Norm, out: View) {
        self.push(name, Op::RmsNorm(RmsNorm { x, weight: norm.weight, out, group: x.width, eps: norm.eps }));
    }

    /// Appends an [`RmsNorm`] of every `group` columns.
    pub fn head_norm(&mut self, name: &str, x: View, norm: Norm, group: usize) -> View {
        let out = self.like(name, x);
        self.push(name, Op::RmsNorm(RmsNorm { x, weight: norm.weight, out, group, eps: norm.eps }));
        out
    }

    /// Appends a [`MatMul`].
    pub fn mat_mul(&mut self, name: &str, x: View, weight: TensorId) -> View {
        let n_out = self.weight_of(weight).map_or(0, |w| w.rows);
        let out = self.activation(name, self.rows(x), n_out);
        self.push(name, Op::MatMul(MatMul { x, weight, out }));
        out
    }

    /// Appends a [`Rope`].
    pub fn rope(&mut self, name: &str, x: View, head_dim: usize, rope: RopeParams) -> View {
        let out = self.like(name, x);
        self.push(name, Op::Rope(Rope { x, out, head_dim, rope }));
        out
    }

    /// Appends a [`KvStore`].
    pub fn kv_store(&mut self, name: &str, k: View, v: View, cache: CacheId) {
        let cache_tensor = self.cache_tensors[cache.index()];
        self.push(name, Op::KvStore(KvStore { k: Some(k), v, cache, cache_tensor }));
    }

    /// Appends a [`KvStore`] into a [`Recorder::value_cache`].
    pub fn value_store(&mut self, name: &str, v: View, cache: CacheId) {
        let cache_tensor = self.cache_tensors[cache.index()];
        self.push(name, Op::KvStore(KvStore { k: None, v, cache, cache_tensor }));
    }

    /// Appends an [`Attention`].
    pub fn attention(&mut self, name: &str, q: View, cache: CacheId, params: AttentionParams) -> View {
        let AttentionParams { heads, scale, softcap } = params;
        let cache_tensor = self.cache_tensors[cache.index()];
        let formed_keys = self.caches[cache.index()].formed_keys;
        let recent = self.recent[cache.index()].map(|id| (id, self.cache_tensors[id.index()]));
        let out = self.like(name, q);
        let op = Attention { q, cache, cache_tensor, out, heads, scale, softcap, formed_keys, recent };
        self.push(name, Op::Attention(op));
        out
    }

    /// Appends an [`Add`].
    pub fn add(&mut self, name: &str, a: View, b: View) -> View {
        let out = self.like(name, a);
        self.push(name, Op::Add(Add { a, b, out }));
        out
    }

    /// Appends a [`Scale`].
    pub fn scale(&mut self, name: &str, x: View, factor: f32, by: Option<TensorId>) -> View {
        let out = self.like(name, x);
        self.push(name, Op::Scale(Scale { x, out, factor, by }));
        out
    }

    /// Appends a [`SoftCap`].
    pub fn soft_cap(&mut self, name: &str, x: View, cap: f32) -> View {
        let out = self.like(name, x);
        self.push(name, Op::SoftCap(SoftCap { x, out, cap }));
        out
    }

    /// Appends a [`Glu`] of two activations (of a dense layer, or of all chosen experts).
    pub fn glu(&mut self, name: &str, gate: View, up: View, act: Activation) -> View {
        let out = self.like(name, gate);
        self.push(name, Op::Glu(Glu { gate, up, out, act, groups: 1, stride: gate.width }));
        out
    }

    /// Appends a [`Glu`] of `top_k` experts' outputs that hold gate and up side by side: `[R, top_k · 2 · width]`.
    pub fn packed_expert_glu(&mut self, name: &str, gate_up: View, top_k: usize, act: Activation) -> View {
        let stride = gate_up.width / top_k.max(1);
        let width = stride / 2;
        let out = self.activation(name, self.rows(gate_up), width * top_k);
        let (gate, up) = (gate_up.columns(0, width), gate_up.columns(width, width));
        self.push(name, Op::Glu(Glu { gate, up, out, act, groups: top_k, stride }));
        out
    }

    /// Appends a [`Route`]; returns the chosen experts and their weights.
    pub fn route(
        &mut self,
        name: &str,
        logits: View,
        top_k: usize,
        (renormalize, expert_scale): (Renormalize, Option<TensorId>),
    ) -> (View, View) {
        let rows = self.rows(logits);
        let experts = self
            .tensor(format!("{}.experts", self.full_name(name)), TensorKind::Indices { rows, width: top_k });
        let experts = View { tensor: experts, offset: 0, width: top_k };
        let weights = self.activation(name, rows, top_k);
        self.push(name, Op::Route(Route { logits, experts, weights, renormalize, expert_scale }));
        (experts, weights)
    }

    /// Appends an [`ExpertMatMul`].
    pub fn expert_mat_mul(
        &mut self,
        name: &str,
        x: View,
        experts: View,
        (weight, input): (TensorId, ExpertInput),
    ) -> View {
        let n_out = self.weight_of(weight).map_or(0, |w| w.rows);
        let out = self.activation(name, self.rows(x), n_out * experts.width);
        self.push(name, Op::ExpertMatMul(ExpertMatMul { x, experts, weight, out, input }));
        out
    }

    /// Appends an [`ExpertSum`].
    pub fn expert_sum(&mut self, name: &str, x: View, weights: View) -> View {
        let out = self.activation(name, self.rows(x), x.width / weights.width.max(1));
        self.push(name, Op::ExpertSum(ExpertSum { x, weights, out }));
        out
    }

    /// Appends a [`SelectRows`].
    pub fn select_rows(&mut self, name: &str, x: View) -> View {
        let out = self.activation(name, RowKind::Logits, x.width);
        self.push(name, Op::SelectRows(SelectRows { x, out }));
        out
    }

    /// Checks the recording. `logits` is what a step returns: `[L, vocabulary]`.
    pub fn finish(self, logits: View) -> Result<Recording, PlanError> {
        let recording = Recording {
            tensors: self.tensors,
            ops: self.ops,
            weights: self.weights,
            groups: self.groups,
            caches: self.caches,
            inputs: self.inputs,
            logits,
            outputs: Vec::new(),
            skipped: Vec::new(),
        };
        crate::check::check(&recording)?;
        Ok(recording)
    }

    fn push(&mut self, name: &str, op: Op) {
        let name = self.full_name(name);
        self.ops.push(NamedOp { name, op });
    }

    fn full_name(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    fn tensor(&mut self, name: String, kind: TensorKind) -> TensorId {
        self.tensors.push(Tensor { name, kind });
        TensorId(index(self.tensors.len() - 1))
    }

    fn activation(&mut self, name: &str, rows: RowKind, width: usize) -> View {
        let tensor = self.tensor(self.full_name(name), TensorKind::Activation { rows, width });
        View { tensor, offset: 0, width }
    }

    fn like(&mut self, name: &str, x: View) -> View {
        self.activation(name, self.rows(x), x.width)
    }

    fn rows(&self, x: View) -> RowKind {
        match self.tensors[x.tensor.index()].kind {
            TensorKind::Activation { rows, .. } | TensorKind::Indices { rows, .. } => rows,
            TensorKind::Weight(_) | TensorKind::Cache(_) => RowKind::Step,
        }
    }

    fn weight_of(&self, id: TensorId) -> Option<&Weight> {
        match &self.tensors[id.index()].kind {
            TensorKind::Weight(w) => Some(w),
            _ => None,
        }
    }

    fn cols(&self, id: TensorId) -> usize {
        self.weight_of(id).map_or(0, |w| w.cols)
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a recording has fewer than 2^32 tensors")
}
