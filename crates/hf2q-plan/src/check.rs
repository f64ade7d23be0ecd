//! Do the operands of every operation fit together?

use std::collections::{HashMap, HashSet};

use hf2q_gguf::TensorType;

use crate::error::PlanError;
use crate::kv::KvFormat;
use crate::op::*;
use crate::plan::{NamedOp, Recording};
use crate::span::Span;
use crate::tensor::{Cache, CacheId, RowKind, TensorId, TensorKind, View, Weight};

impl Recording {
    /// What [`crate::Recorder::finish`] has checked, again: fields are public, so a backend that relies on it asks.
    ///
    /// # Errors
    /// The first operation whose operands do not fit together.
    pub fn check(&self) -> Result<(), PlanError> {
        check(self)
    }

    /// Whether a view lies within its activation.
    fn contains(&self, view: View) -> bool {
        let width = self.activation(view.tensor).map_or(0, |(_, width)| width);
        view.offset.checked_add(view.width).is_some_and(|end| end <= width)
    }
}

/// Names, order of writes and reads, rows, widths, types and parameters.
pub(crate) fn check(r: &Recording) -> Result<(), PlanError> {
    caches(r)?;
    let writers = writers(r);
    let mut names = HashSet::new();
    // Kernels trust indices, so those must be written.
    let is_index = |t: &TensorId| matches!(r.tensors[t.index()].kind, TensorKind::Indices { .. });
    let mut written: HashSet<TensorId> = r.skipped.iter().copied().filter(|t| !is_index(t)).collect();
    for op in &r.ops {
        if !names.insert(op.name.as_str()) {
            return Err(PlanError::DuplicateName { op: op.name.clone() });
        }
        let access = op.op.access();
        let unwritten = access.reads.iter().find(|t| r.activation(**t).is_some() && !written.contains(*t));
        if let Some(t) = unwritten {
            let tensor = r.tensors[t.index()].name.clone();
            return Err(PlanError::ReadBeforeWrite { op: op.name.clone(), tensor });
        }
        written.extend(access.writes);
        Checker { r, op, writers: &writers }.operation()?;
        if let Some(view) = op.op.views().into_iter().find(|v| !r.contains(*v)) {
            let tensor = r.tensors[view.tensor.index()].name.clone();
            return Err(PlanError::View { op: op.name.clone(), tensor });
        }
    }
    groups(r)?;
    kept(r)
}

/// How many operations write a tensor of indices.
fn writers(r: &Recording) -> HashMap<TensorId, usize> {
    let mut writers = HashMap::new();
    for tensor in r.ops.iter().flat_map(|op| op.op.access().writes) {
        if matches!(r.tensors[tensor.index()].kind, TensorKind::Indices { .. }) {
            *writers.entry(tensor).or_insert(0) += 1;
        }
    }
    writers
}

/// Rows see a position of every group, if only their own.
fn groups(r: &Recording) -> Result<(), PlanError> {
    let empty = r.groups.iter().find(|g| g.span.most() == Some(0));
    empty.map_or(Ok(()), |g| Err(PlanError::EmptySpan { group: g.name.clone() }))
}

/// What a step returns lies within its activation, and so does what is read after it.
fn kept(r: &Recording) -> Result<(), PlanError> {
    let outputs = r.outputs.iter().map(|view| ("outputs", view));
    for (what, view) in std::iter::once(("logits", &r.logits)).chain(outputs) {
        if !r.contains(*view) {
            let tensor = r.tensors[view.tensor.index()].name.clone();
            return Err(PlanError::View { op: what.to_owned(), tensor });
        }
    }
    Ok(())
}

/// Every cache has formats that its heads can be stored in.
fn caches(r: &Recording) -> Result<(), PlanError> {
    for cache in &r.caches {
        for (what, format) in [("keys", cache.k_format), ("values", cache.v_format)] {
            let head_dim = cache.head_dim;
            if !format.accepts(head_dim) {
                let possible = KvFormat::ALL.iter().filter(|f| f.accepts(head_dim)).map(|f| f.name());
                let accepted = possible.collect::<Vec<_>>().join(", ");
                let cache = cache.name.clone();
                return Err(PlanError::KvFormat { cache, what, head_dim, format: format.name(), accepted });
            }
        }
    }
    Ok(())
}

struct Checker<'a> {
    r: &'a Recording,
    op: &'a NamedOp,
    writers: &'a HashMap<TensorId, usize>,
}

impl Checker<'_> {
    fn operation(&self) -> Result<(), PlanError> {
        match &self.op.op {
            Op::Embed(o) => {
                let w = self.weight("table", o.table)?;
                self.equal("width of out", o.out.width, w.cols)?;
                self.rows("out", o.out, RowKind::Step)
            }
            Op::Input(o) => match self.r.inputs.get(o.index) {
                Some(&width) => {
                    self.equal("width of out", o.out.width, width)?;
                    self.rows("out", o.out, RowKind::Step)
                }
                None => self.fail("input", o.index, format!("below {}", self.r.inputs.len())),
            },
            Op::RmsNorm(o) => self.rms_norm(o),
            Op::MatMul(o) => {
                let w = self.weight("weight", o.weight)?;
                self.equal("experts of weight", w.experts, 1)?;
                self.equal("width of x", o.x.width, w.cols)?;
                self.equal("width of out", o.out.width, w.rows)?;
                self.same_rows(o.x, o.out)
            }
            Op::Rope(o) => self.rotation(o.x, o.out, o.head_dim, &o.rope),
            Op::KvStore(o) => self.kv_store(o),
            Op::Attention(o) => self.attention(o),
            Op::Add(o) => {
                self.same_shape("b", o.a, o.b)?;
                self.same_shape("out", o.a, o.out)
            }
            Op::Scale(o) => {
                self.vector("by", o.by, 1)?;
                self.same_shape("out", o.x, o.out)
            }
            Op::SoftCap(o) => {
                self.positive("cap", o.cap)?;
                self.same_shape("out", o.x, o.out)
            }
            Op::Glu(o) => self.glu(o),
            Op::Route(o) => self.route(o),
            Op::ExpertMatMul(o) => self.expert_mat_mul(o),
            Op::ExpertSum(o) => {
                self.equal("width of x", o.x.width, o.weights.width * o.out.width)?;
                self.same_rows(o.x, o.weights)?;
                self.same_rows(o.x, o.out)
            }
            Op::SelectRows(o) => {
                self.equal("width of out", o.out.width, o.x.width)?;
                self.rows("x", o.x, RowKind::Step)?;
                self.rows("out", o.out, RowKind::Logits)
            }
            Op::NormAdd(o) => {
                self.vector("weight", o.weight, o.x.width)?;
                self.same_shape("residual", o.x, o.residual)?;
                self.same_shape("out", o.x, o.out)
            }
            Op::NormRope(o) => {
                self.vector("weight", o.weight, o.head_dim)?;
                self.rotation(o.x, o.out, o.head_dim, &o.rope)
            }
        }
    }

    fn rms_norm(&self, o: &RmsNorm) -> Result<(), PlanError> {
        self.multiple("width of x", o.x.width, o.group)?;
        self.vector("weight", o.weight, o.group)?;
        self.same_shape("out", o.x, o.out)
    }

    fn rotation(&self, x: View, out: View, head_dim: usize, rope: &RopeParams) -> Result<(), PlanError> {
        self.multiple("width of x", x.width, head_dim)?;
        self.angles(head_dim, rope)?;
        self.same_shape("out", x, out)
    }

    fn angles(&self, head_dim: usize, rope: &RopeParams) -> Result<(), PlanError> {
        self.multiple("rotated columns", rope.dims, 2)?;
        if rope.dims > head_dim {
            return self.fail("rotated columns", rope.dims, format!("at most the head's {head_dim}"));
        }
        self.positive("base", rope.base)?;
        self.vector("factors", rope.factors, rope.dims / 2)
    }

    fn kv_store(&self, o: &KvStore) -> Result<(), PlanError> {
        let width = self.kv_width(o.cache);
        let cache = self.r.cache(o.cache);
        match (o.k, cache.keys()) {
            (Some(k), Some(_)) => {
                self.equal("width of k", k.width, width)?;
                self.rows("k", k, RowKind::Step)?;
            }
            (None, None) => {}
            (Some(_), None) => return self.fail("k", "stored", format!("none: {} forms keys", cache.name)),
            (None, Some(_)) => return self.fail("k", "absent", format!("what {} stores", cache.name)),
        }
        self.equal("width of v", o.v.width, width)?;
        self.rows("v", o.v, RowKind::Step)?;
        self.is_cache(o.cache_tensor, o.cache)
    }

    fn attention(&self, o: &Attention) -> Result<(), PlanError> {
        let cache = self.r.cache(o.cache);
        self.equal("width of q", o.q.width, o.heads * cache.head_dim)?;
        self.multiple("query heads", o.heads, cache.kv_heads)?;
        self.is_cache(o.cache_tensor, o.cache)?;
        if let Some(cap) = o.softcap {
            self.positive("softcap", cap)?;
        }
        self.formed_keys(o, cache)?;
        if let Some((id, tensor)) = o.recent {
            self.is_cache(tensor, id)?;
            self.recent(o, cache, self.r.cache(id))?;
        }
        self.same_shape("out", o.q, o.out)
    }

    fn formed_keys(&self, o: &Attention, cache: &Cache) -> Result<(), PlanError> {
        if o.formed_keys != cache.formed_keys {
            return self.fail("forming of keys", "another", format!("that of {}", cache.name));
        }
        let Some(keys) = &o.formed_keys else { return Ok(()) };
        self.vector("weight of formed keys", keys.weight, cache.head_dim)?;
        self.angles(cache.head_dim, &keys.rope)?;
        let half = keys.rope.dims / 2;
        if keys.pairs > half
            || (keys.pairs < half && (keys.rope.factors.is_none() || keys.rope.magnitude != 1.0))
        {
            return self.fail(
                "pairs of formed keys that turn",
                keys.pairs,
                format!("{half}, fewer only by factors"),
            );
        }
        let [k, v] = [cache.k_format, cache.v_format].map(KvFormat::name);
        if k != v {
            return self.fail("format of formed keys", k, format!("that of values, {v}"));
        }
        Ok(())
    }

    /// A cache of the last positions has the heads of the other one, and rows see whole pages of it.
    fn recent(&self, o: &Attention, cache: &Cache, recent: &Cache) -> Result<(), PlanError> {
        self.equal("heads of recent positions", recent.kv_heads, cache.kv_heads)?;
        self.equal("head size of recent positions", recent.head_dim, cache.head_dim)?;
        match self.r.groups.get(recent.group.index()).map(|g| g.span) {
            Some(Span::Pages(n)) if n > 0 => self.formed_keys(o, recent),
            span => self.fail("span of recent positions", format!("{span:?}"), "whole pages".to_owned()),
        }
    }

    fn glu(&self, o: &Glu) -> Result<(), PlanError> {
        self.same_shape("up", o.gate, o.up)?;
        self.same_rows(o.gate, o.out)?;
        self.equal("width of out", o.out.width, o.groups * o.gate.width)?;
        for view in [o.gate, o.up] {
            let end = view.offset + o.groups.saturating_sub(1) * o.stride + view.width;
            let width = self.r.activation(view.tensor).map_or(0, |(_, w)| w);
            if end > width || (o.groups > 1 && o.stride < view.width) {
                return self.fail("last column of the groups", end, format!("at most {width}"));
            }
        }
        Ok(())
    }

    fn route(&self, o: &Route) -> Result<(), PlanError> {
        let experts = o.logits.width;
        if o.experts.width == 0 || o.experts.width > experts {
            return self.fail("chosen experts", o.experts.width, format!("1 to {experts}"));
        }
        self.equal("width of weights", o.weights.width, o.experts.width)?;
        self.vector("expert scale", o.expert_scale, experts)?;
        self.indices(o.experts)?;
        self.same_rows(o.logits, o.experts)?;
        self.same_rows(o.logits, o.weights)
    }

    fn expert_mat_mul(&self, o: &ExpertMatMul) -> Result<(), PlanError> {
        let w = self.weight("weight", o.weight)?;
        let k = o.experts.width;
        let n_in = match o.input {
            ExpertInput::Shared => w.cols,
            ExpertInput::PerExpert => k * w.cols,
        };
        self.indices(o.experts)?;
        self.chosen_of(o.experts, w.experts)?;
        self.equal("width of x", o.x.width, n_in)?;
        self.equal("width of out", o.out.width, k * w.rows)?;
        self.same_rows(o.x, o.experts)?;
        self.same_rows(o.x, o.out)
    }

    /// One router of as many experts writes these choices, and nothing else does: kernels trust them.
    fn chosen_of(&self, chosen: View, experts: usize) -> Result<(), PlanError> {
        let route = self.r.ops.iter().find_map(|o| match &o.op {
            Op::Route(route) if route.experts == chosen => Some(route),
            _ => None,
        });
        match route {
            Some(route) if self.writers.get(&chosen.tensor) == Some(&1) => {
                self.equal("experts of weight", experts, route.logits.width)
            }
            _ => {
                let name = &self.r.tensors[chosen.tensor.index()].name;
                self.fail("experts", name, "what one router writes, and nothing else".to_owned())
            }
        }
    }

    fn kv_width(&self, id: CacheId) -> usize {
        let cache = self.r.cache(id);
        cache.kv_heads * cache.head_dim
    }

    fn is_cache(&self, tensor: TensorId, id: CacheId) -> Result<(), PlanError> {
        match self.r.tensors[tensor.index()].kind {
            TensorKind::Cache(found) if found == id => Ok(()),
            _ => self.fail(
                "cache tensor",
                &self.r.tensors[tensor.index()].name,
                "the tensor of the cache".to_owned(),
            ),
        }
    }

    fn indices(&self, view: View) -> Result<(), PlanError> {
        match self.r.tensors[view.tensor.index()].kind {
            TensorKind::Indices { .. } => Ok(()),
            _ => self.fail("experts", &self.r.tensors[view.tensor.index()].name, "an i32 tensor".to_owned()),
        }
    }

    fn weight(&self, what: &'static str, id: TensorId) -> Result<&Weight, PlanError> {
        match &self.r.tensors[id.index()].kind {
            TensorKind::Weight(w) => match w.ty.row_bytes(w.cols) {
                Some(_) if w.cols == 0 || w.rows == 0 || w.experts == 0 => {
                    Err(self.error(what, "empty", "a weight with elements".to_owned()))
                }
                Some(_) => Ok(w),
                None => {
                    let expected = format!("a multiple of {} for type {}", w.ty.block_len(), w.ty);
                    Err(self.error(what, w.cols, expected))
                }
            },
            _ => Err(self.error(what, &self.r.tensors[id.index()].name, "a weight".to_owned())),
        }
    }

    fn vector(&self, what: &'static str, id: Option<TensorId>, len: usize) -> Result<(), PlanError> {
        let Some(id) = id else { return Ok(()) };
        let w = self.weight(what, id)?;
        if w.ty != TensorType::F32 {
            return self.fail(what, w.ty, "f32".to_owned());
        }
        self.equal(what, w.cols * w.rows * w.experts, len)
    }

    fn same_shape(&self, what: &'static str, a: View, b: View) -> Result<(), PlanError> {
        self.equal(what, b.width, a.width)?;
        self.same_rows(a, b)
    }

    fn same_rows(&self, a: View, b: View) -> Result<(), PlanError> {
        let rows = |v: View| self.r.activation(v.tensor).map(|(rows, _): (RowKind, usize)| rows);
        if rows(a) == rows(b) && rows(a).is_some() {
            return Ok(());
        }
        self.fail("row kind", format!("{:?}", rows(b)), format!("{:?}", rows(a)))
    }

    /// An activation of these rows: tokens and slots belong to the rows of the step.
    fn rows(&self, what: &'static str, view: View, expected: RowKind) -> Result<(), PlanError> {
        match self.r.activation(view.tensor) {
            Some((found, _)) if found == expected => Ok(()),
            Some((found, _)) => self.fail(what, format!("{found:?} rows"), format!("{expected:?} rows")),
            None => self.fail(what, "no activation", format!("{expected:?} rows")),
        }
    }

    fn equal(&self, what: &'static str, found: usize, expected: usize) -> Result<(), PlanError> {
        if found == expected { Ok(()) } else { self.fail(what, found, expected.to_string()) }
    }

    fn multiple(&self, what: &'static str, found: usize, of: usize) -> Result<(), PlanError> {
        if of > 0 && found > 0 && found.is_multiple_of(of) {
            return Ok(());
        }
        self.fail(what, found, format!("a positive multiple of {of}"))
    }

    fn positive(&self, what: &'static str, found: f32) -> Result<(), PlanError> {
        if found.is_finite() && found > 0.0 {
            Ok(())
        } else {
            self.fail(what, found, "a positive number".to_owned())
        }
    }

    fn fail(&self, what: &'static str, found: impl ToString, expected: String) -> Result<(), PlanError> {
        Err(self.error(what, found, expected))
    }

    fn error(&self, what: &'static str, found: impl ToString, expected: String) -> PlanError {
        PlanError::Shape { op: self.op.name.clone(), what, found: found.to_string(), expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionParams, FormedKeys, Recorder, Renormalize};

    fn weight(r: &mut Recorder, name: &str, experts: usize) -> TensorId {
        r.weight(name, Weight { ty: TensorType::F32, cols: 8, rows: 8, experts })
    }

    #[test]
    fn rows_that_are_picked_attend_but_cannot_be_stored() {
        let mut r = Recorder::default();
        let table = weight(&mut r, "table", 1);
        let x = r.embed("embed", table, 1.0);
        let group = r.group("global", None);
        let cache = r.cache(group, 1, 8, (KvFormat::F32, KvFormat::F32));
        let picked = r.select_rows("select", x);
        let params = AttentionParams { heads: 1, scale: 1.0, softcap: None };
        let rope = RopeParams {
            dims: 8,
            pairing: Pairing::Halves,
            base: 1e4,
            freq_scale: 1.0,
            factors: None,
            yarn: None,
            magnitude: 1.0,
        };
        let turned = r.rope("rope", picked, 8, rope);
        let out = r.attention("attention", turned, cache, params);
        r.kv_store("store", x, picked, cache);
        let error = r.finish(out).unwrap_err().to_string();
        assert!(error.contains("operation store: v is Logits rows, expected Step rows"), "{error}");
    }

    #[test]
    fn formats_that_heads_cannot_have_are_refused() {
        let mut r = Recorder::default();
        let x = {
            let table = weight(&mut r, "table", 1);
            r.embed("embed", table, 1.0)
        };
        let group = r.group("global", None);
        let cache = r.cache(group, 1, 8, (KvFormat::F16, KvFormat::Tq4));
        r.kv_store("store", x, x, cache);
        let params = AttentionParams { heads: 1, scale: 1.0, softcap: None };
        let out = r.attention("attention", x, cache, params);
        let error = r.finish(out).unwrap_err().to_string();
        let expected = "values in heads of 8 cannot be tq4; formats of that head size: f32, f16, bf16";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn experts_are_those_of_the_same_rows() {
        let mut r = Recorder::default();
        let (table, experts) = (weight(&mut r, "table", 1), weight(&mut r, "experts", 8));
        let x = r.embed("embed", table, 1.0);
        let (chosen, _) = r.route("route", x, 2, (Renormalize::Keep, None));
        let picked = r.select_rows("select", x);
        let out = r.expert_mat_mul("product", picked, chosen, (experts, ExpertInput::Shared));
        let error = r.finish(out).unwrap_err().to_string();
        assert!(error.contains("operation product: row kind"), "{error}");
    }

    /// A cache of heads of 8 that forms keys, and its store.
    fn formed(r: &mut Recorder) -> (View, CacheId) {
        let (table, w) =
            (weight(r, "table", 1), Weight { ty: TensorType::F32, cols: 8, rows: 1, experts: 1 });
        let x = r.embed("embed", table, 1.0);
        let rope = RopeParams {
            dims: 8,
            pairing: Pairing::Halves,
            base: 1e4,
            freq_scale: 1.0,
            factors: None,
            yarn: None,
            magnitude: 1.0,
        };
        let keys = FormedKeys { weight: Some(r.weight("norm", w)), rope, pairs: 4 };
        let group = r.group("global", None);
        (x, r.value_cache(group, 1, 8, (KvFormat::F16, keys)))
    }

    #[test]
    fn formed_keys_are_half_of_the_bytes_and_never_stored() {
        const ONE: AttentionParams = AttentionParams { heads: 1, scale: 1.0, softcap: None };
        let mut r = Recorder::default();
        let (x, cache) = formed(&mut r);
        r.value_store("store", x, cache);
        let out = r.attention("attention", x, cache, ONE);
        let logits = r.select_rows("logits", out);
        let recording = r.finish(logits).unwrap();
        let cache = &recording.caches[0];
        let two = crate::Cache { formed_keys: None, ..cache.clone() };
        assert_eq!((cache.page_bytes() * 2, cache.position_bytes()), (two.page_bytes(), 16));
        let Op::Attention(attention) = &recording.ops[2].op else { panic!("attention is there") };
        let norm = attention.formed_keys.unwrap().weight.unwrap();
        assert!(recording.ops[2].op.access().reads.contains(&norm));

        let mut r = Recorder::default();
        let (x, cache) = formed(&mut r);
        r.kv_store("store", x, x, cache);
        let out = r.attention("attention", x, cache, ONE);
        let error = r.finish(out).unwrap_err().to_string();
        assert_eq!(error, "operation store: k is stored, expected none: kv forms keys");
    }

    #[test]
    fn attention_forms_keys_as_the_cache_says() {
        let mut r = Recorder::default();
        let (x, cache) = formed(&mut r);
        r.value_store("store", x, cache);
        let out = r.attention("attention", x, cache, AttentionParams { heads: 1, scale: 1.0, softcap: None });
        let logits = r.select_rows("logits", out);
        let mut recording = r.finish(logits).unwrap();
        recording.caches[0].k_format = KvFormat::F32;
        let error = recording.check().unwrap_err().to_string();
        assert_eq!(error, "operation attention: format of formed keys is f32, expected that of values, f16");
        let Op::Attention(attention) = &mut recording.ops[2].op else { panic!("attention is there") };
        attention.formed_keys = None;
        let error = recording.check().unwrap_err().to_string();
        assert_eq!(error, "operation attention: forming of keys is another, expected that of kv");
    }

    #[test]
    fn recent_positions_have_the_heads_of_the_others_and_whole_pages() {
        const ONE: AttentionParams = AttentionParams { heads: 1, scale: 1.0, softcap: None };
        let build = |span: Span| {
            let mut r = Recorder::default();
            let (x, cache) = formed(&mut r);
            let group = r.group("recent", span);
            let recent = r.recent_cache(cache, group, (KvFormat::F32, KvFormat::F32));
            r.value_store("store", x, cache);
            r.value_store("store_recent", x, recent);
            let out = r.attention("attention", x, cache, ONE);
            let logits = r.select_rows("logits", out);
            r.finish(logits)
        };
        let recording = build(Span::Pages(1)).unwrap();
        let Op::Attention(attention) = &recording.ops[3].op else { panic!("attention is there") };
        let (recent, tensor) = attention.recent.unwrap();
        assert_eq!(recording.cache(recent).name, "kv_recent");
        assert!(recording.ops[3].op.access().reads.contains(&tensor));
        for span in [Span::All, Span::Last(64), Span::Pages(0)] {
            let error = build(span).unwrap_err().to_string();
            assert!(
                error.contains("span of recent positions is") && error.ends_with("whole pages"),
                "{error}"
            );
        }
        let mut other = recording.clone();
        other.caches[recent.index()].head_dim = 4;
        let error = other.check().unwrap_err().to_string();
        assert!(error.contains("of v is 8, expected 4"), "{error}");
        let mut other = recording;
        other.caches[recent.index()].formed_keys = None;
        other.ops.remove(2);
        let error = other.check().unwrap_err().to_string();
        assert_eq!(error, "operation attention: forming of keys is another, expected that of kv_recent");
    }

    /// A router of 8 experts, and a product with one of `experts`.
    fn routed(experts: usize) -> Result<Recording, PlanError> {
        let mut r = Recorder::default();
        let (table, stack) = (weight(&mut r, "table", 1), weight(&mut r, "experts", experts));
        let x = r.embed("embed", table, 1.0);
        let (chosen, _) = r.route("route", x, 1, (Renormalize::Keep, None));
        let out = r.expert_mat_mul("product", x, chosen, (stack, ExpertInput::Shared));
        let logits = r.select_rows("logits", out);
        r.finish(logits)
    }

    #[test]
    fn experts_are_what_one_router_chose() {
        let recording = routed(8).unwrap();
        let error = routed(7).unwrap_err().to_string();
        assert_eq!(error, "operation product: experts of weight is 7, expected 8");
        let mut other = recording.clone();
        let mut twice = other.ops[1].clone();
        twice.name = "again".to_owned();
        other.ops.insert(2, twice);
        let error = other.check().unwrap_err().to_string();
        assert!(error.ends_with("expected what one router writes, and nothing else"), "{error}");
        let mut other = recording;
        let Op::ExpertMatMul(product) = &mut other.ops[2].op else { panic!("the product is there") };
        product.experts.width = 0;
        product.out.width = 0;
        let error = other.check().unwrap_err().to_string();
        assert!(error.ends_with("expected what one router writes, and nothing else"), "{error}");
    }

    #[test]
    fn views_lie_within_activations_and_spans_are_not_empty() {
        let recording = routed(8).unwrap();
        let mut other = recording.clone();
        let Op::SelectRows(select) = &mut other.ops[3].op else { panic!("the selection is there") };
        select.x.offset = usize::MAX;
        let error = other.check().unwrap_err().to_string();
        assert_eq!(error, "operation logits: a view of product leaves it");
        let mut other = recording.clone();
        other.logits.offset = 1;
        assert_eq!(other.check().unwrap_err().to_string(), "operation logits: a view of logits leaves it");
        let mut other = recording;
        other.groups.push(crate::Group { name: "sliding".to_owned(), span: Span::Last(0) });
        let error = other.check().unwrap_err().to_string();
        assert_eq!(error, "rows see no position of group sliding, not even their own");
    }
}
