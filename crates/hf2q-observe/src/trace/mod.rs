//! Tensors of chosen operations and steps.

mod read;
mod stats;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_plan::{
    CacheId, NamedOp, Observer, Op, Plan, RowKind, SelectError, TensorKind, Tensors, View, select,
};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::error::ObserveError;

pub use read::{TraceStep, trace};
pub use stats::{CodecStats, HISTOGRAM, Histogram, TensorStats};
pub use steps::{Steps, StepsError};

/// What can be traced: what an operation writes, and what it stores in a cache.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    op: usize,
    view: View,
    /// Where it is stored.
    cache: Option<CacheId>,
}

/// One tensor of one step.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The operation's name; behind that `.k` or `.v` for what is stored in a cache, `.experts` for chosen experts.
    pub name: String,
    /// Which step.
    pub step: usize,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Which rows it has.
    pub rows: RowKind,
    is_indices: bool,
    /// Little endian.
    bytes: Vec<u8>,
}

impl Traced {
    /// The values, if they are no indices.
    pub fn values(&self) -> Option<impl Iterator<Item = f32>> {
        let values = self.bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b));
        (!self.is_indices).then_some(values)
    }
}

/// Keeps the tensors that were chosen.
pub struct Tracer {
    plan: Arc<Plan>,
    /// By the operation that shows them.
    chosen: HashMap<String, Vec<Source>>,
    step: usize,
    traced: Vec<Traced>,
    hidden: Option<String>,
}

impl Tracer {
    /// For programs of `plan`. A pattern chooses tensors by their names, or all of an operation's by its name.
    ///
    /// # Errors
    /// A pattern matches nothing.
    pub fn new<S: AsRef<str>>(plan: Arc<Plan>, globs: &[S]) -> Result<Self, SelectError> {
        let all = sources(&plan);
        let ops = &plan.recording.ops;
        let names: Vec<&str> =
            all.iter().map(|s| s.name.as_str()).chain(all.iter().map(|s| ops[s.op].name.as_str())).collect();
        let mut chosen: Vec<usize> = select(globs, &names)?.into_iter().map(|i| i % all.len()).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut by_op: HashMap<String, Vec<Source>> = HashMap::new();
        for i in chosen {
            by_op.entry(ops[all[i].op].name.clone()).or_default().push(all[i].clone());
        }
        Ok(Self { plan, chosen: by_op, step: 0, traced: Vec::new(), hidden: None })
    }

    /// Bytes that are kept of steps of so many rows together.
    pub fn bytes(&self, rows: usize) -> u64 {
        let sources = self.chosen.values().flatten();
        sources.map(|s| (s.view.width * rows * size_of::<f32>()) as u64).sum()
    }

    /// Number of chosen tensors.
    pub fn len(&self) -> usize {
        self.chosen.values().map(Vec::len).sum()
    }

    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// What was kept, step by step, in the order of the plan.
    pub fn traced(&self) -> &[Traced] {
        &self.traced
    }

    /// Everything that was kept as a file of safetensors, one tensor `NAME@STEP` each. The metadata are `metadata` and,
    /// as JSON by step, `tokens`, `positions` of the rows and `logit_positions` of those whose logits were wanted.
    ///
    /// # Errors
    /// A number of bytes that the format cannot hold.
    pub fn safetensors(
        &self,
        steps: &[TraceStep],
        mut metadata: HashMap<String, String>,
    ) -> Result<Vec<u8>, ObserveError> {
        let views = self.traced.iter().map(|t| {
            let dtype = if t.is_indices { Dtype::I32 } else { Dtype::F32 };
            TensorView::new(dtype, t.shape.to_vec(), &t.bytes)
                .map(|view| (format!("{}@{}", t.name, t.step), view))
        });
        let failed = |e: safetensors::SafeTensorError| ObserveError::Trace { why: e.to_string() };
        let views = views.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        metadata.extend(read::metadata(steps));
        safetensors::serialize(views, Some(metadata)).map_err(failed)
    }

    /// What each chosen tensor's values are like in all steps together, in the order of the plan.
    pub fn stats(&self) -> Vec<TensorStats> {
        let mut sources: Vec<&Source> = self.chosen.values().flatten().collect();
        sources.sort_by_key(|s| s.op);
        let recording = &self.plan.recording;
        let is_values = |s: &&Source| {
            matches!(recording.tensors[s.view.tensor.index()].kind, TensorKind::Activation { .. })
        };
        let of = |s: &Source| {
            let mine = self.traced.iter().filter(|t| t.name == s.name);
            let values: Vec<f32> = mine.filter_map(Traced::values).flatten().collect();
            TensorStats::new(&s.name, &values, s.cache.map(|c| recording.cache(c).head_dim))
        };
        sources.into_iter().filter(is_values).map(of).collect()
    }

    fn keep(&mut self, source: &Source, tensors: &dyn Tensors) -> Option<()> {
        let View { tensor, offset, width } = source.view;
        let (rows, stride) = self.plan.recording.activation(tensor)?;
        let is_indices =
            matches!(self.plan.recording.tensors[tensor.index()].kind, TensorKind::Indices { .. });
        let mut bytes = Vec::new();
        if is_indices {
            let all = tensors.indices(tensor)?;
            let rows = all.chunks_exact(stride).map(|row| &row[offset..offset + width]);
            bytes.extend(rows.flatten().flat_map(|v| v.to_le_bytes()));
        } else {
            let all = tensors.values(tensor)?;
            let rows = all.chunks_exact(stride).map(|row| &row[offset..offset + width]);
            bytes.extend(rows.flatten().flat_map(|v| v.to_le_bytes()));
        }
        let shape = [bytes.len() / size_of::<f32>() / width.max(1), width];
        let (name, step) = (source.name.clone(), self.step);
        self.traced.push(Traced { name, step, shape, rows, is_indices, bytes });
        Some(())
    }
}

impl Observer for Tracer {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.chosen.contains_key(&op.name)
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        for source in self.chosen.get(&op.name).cloned().unwrap_or_default() {
            if self.keep(&source, tensors).is_none() {
                self.hidden.get_or_insert_with(|| op.name.clone());
            }
        }
    }
}

/// All that can be traced, in the order of the plan.
fn sources(plan: &Plan) -> Vec<Source> {
    let recording = &plan.recording;
    let mut all = Vec::new();
    for (i, op) in recording.ops.iter().enumerate() {
        if let Op::KvStore(o) = &op.op {
            let named = [("k", o.k), ("v", Some(o.v))];
            for (side, view) in named.into_iter().filter_map(|(side, view)| Some((side, view?))) {
                all.push(Source { name: format!("{}.{side}", op.name), op: i, view, cache: Some(o.cache) });
            }
            continue;
        }
        for tensor in op.op.access().writes {
            if let Some((_, width)) = recording.activation(tensor) {
                let name = recording.tensors[tensor.index()].name.clone();
                all.push(Source { name, op: i, view: View { tensor, offset: 0, width }, cache: None });
            }
        }
    }
    all
}
