//! A plan becomes prepared launches, with all memory that they use.

use std::collections::HashMap;

use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{BackendError, Limits, NamedOp, Op, Plan, Recording, RopeParams, RowKind, TensorId, View};

use crate::backend::NAME;
use crate::device::Device;
use crate::error::CudaError;
use crate::launch::kv::{DeviceCache, Mover, mover};
use crate::launch::mat_mul::Quantized;
use crate::launch::{Call, Operand, Rows};
use crate::library::{Function, Library};
use crate::lower::lower;
use crate::memory::{Buffer, Pinned};
use crate::sources::Variant;

/// Bytes through which weights travel.
const STAGE: usize = 32 << 20;

/// Calls of a wave; those of `before` run first.
#[derive(Default)]
pub(crate) struct Wave {
    pub(crate) before: Vec<Box<dyn Call>>,
    pub(crate) calls: Vec<Box<dyn Call>>,
}

/// A plan made ready.
pub(crate) struct Compiled {
    pub(crate) device: Device,
    /// What runs before the first wave: tables that depend on the step.
    pub(crate) first: Vec<Box<dyn Call>>,
    /// One for each wave of the plan.
    pub(crate) waves: Vec<Wave>,
    /// Addresses of activations, by tensor index.
    pub(crate) places: Vec<Option<u64>>,
    /// Activations.
    pub(crate) arena: Buffer,
    /// Weights and everything else that is allocated for good.
    _buffers: Vec<Buffer>,
    /// Moves of slots.
    pub(crate) mover: Mover,
    /// Tokens that every embedding table has a row for.
    pub(crate) vocabulary: usize,
}

impl Compiled {
    /// Copies values of the arena to the host and waits for them.
    pub(crate) fn read(&self, at: u64, to: &mut [f32]) -> Result<(), CudaError> {
        let mut pinned = Pinned::new(&self.device, "values to be read", size_of_val(to))?;
        self.arena.download(&self.device, at, (&mut pinned, size_of_val(to)))?;
        self.device.wait("reading values")?;
        to.copy_from_slice(pinned.values(to.len()));
        Ok(())
    }
}

/// A weight on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceWeight {
    /// Address of its bytes, as they are in the file, with [`PADDING`] zero bytes behind them.
    pub(crate) data: u64,
    pub(crate) ty: TensorType,
    /// Values of a row.
    pub(crate) n_in: usize,
    /// Rows of a matrix.
    pub(crate) n_out: usize,
}

/// Bytes behind every weight that kernels may read.
pub(crate) const PADDING: usize = 256;

/// State of a compilation.
pub(crate) struct Compiler<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) limits: &'a Limits,
    pub(crate) device: Device,
    library: &'a Library,
    bytes: HashMap<TensorId, Bytes>,
    weights: HashMap<TensorId, DeviceWeight>,
    stage: Pinned,
    buffers: Vec<Buffer>,
    places: Vec<Option<u64>>,
    first: Vec<Box<dyn Call>>,
    before: Vec<Box<dyn Call>>,
    /// Quantized activations that are up to date.
    pub(crate) quantized: Quantized,
    /// Rotations of the plan and the addresses of their tables of angles.
    pub(crate) angles: Vec<(RopeParams, u64)>,
    /// By [`hf2q_plan::CacheId::index`].
    pub(crate) caches: HashMap<usize, DeviceCache>,
    /// Memory that calls use one after another: address and bytes.
    space: Vec<(&'static str, u64, usize)>,
}

/// Prepares a plan: allocates, uploads weights, compiles kernels.
pub(crate) fn compile(
    plan: &Plan,
    weights: Vec<Bytes>,
    limits: &Limits,
    (device, library): (Device, &Library),
) -> Result<Compiled, BackendError> {
    let recording = &plan.recording;
    check(recording, &weights, limits)?;
    let arena = plan.arena(limits.max_rows, limits.max_logit_rows);
    if arena.offsets[recording.logits.tensor.index()].is_none() {
        return Err(BackendError::Failed { backend: NAME, why: "no operation writes the logits".to_owned() });
    }
    let memory = Buffer::new(&device, "the arena of activations", arena.bytes)?;
    let place = |at: Option<usize>| at.map(|at| memory.at() + at as u64);
    let stage = Pinned::new(&device, "the way of weights to the device", STAGE)?;
    let mut compiler = Compiler {
        recording,
        limits,
        library,
        bytes: recording.weights.iter().copied().zip(weights).collect(),
        weights: HashMap::new(),
        stage,
        buffers: Vec::new(),
        places: arena.offsets.iter().map(|&at| place(at)).collect(),
        first: Vec::new(),
        before: Vec::new(),
        quantized: Quantized::default(),
        angles: Vec::new(),
        caches: HashMap::new(),
        space: Vec::new(),
        device,
    };
    let mut waves = Vec::new();
    for range in &plan.waves {
        let ops = &recording.ops[range.clone()];
        let calls = ops.iter().map(|op| lower(&mut compiler, op)).collect::<Result<Vec<_>, _>>()?;
        let before = std::mem::take(&mut compiler.before);
        compiler.forget(ops);
        waves.push(Wave { before, calls });
    }
    let mover = mover(&mut compiler, recording)?;
    let Compiler { device, first, places, buffers, .. } = compiler;
    device.wait("preparing a plan")?;
    let vocabulary = vocabulary(recording);
    Ok(Compiled { device, first, waves, places, arena: memory, _buffers: buffers, mover, vocabulary })
}

fn vocabulary(recording: &Recording) -> usize {
    let rows = recording.ops.iter().filter_map(|op| match &op.op {
        Op::Embed(o) => Some(recording.weight(o.table).rows),
        _ => None,
    });
    rows.min().unwrap_or(usize::MAX)
}

/// Most rows of a step: sizes of activations cannot overflow below it.
const MAX_ROWS: usize = 1 << 20;

/// Numbers of groups, rows and weights, and the weights' sizes.
fn check(recording: &Recording, weights: &[Bytes], limits: &Limits) -> Result<(), BackendError> {
    let failed = |why| Err(BackendError::Failed { backend: NAME, why });
    let (groups, expected) = (recording.groups.len(), recording.weights.len());
    if limits.pages.len() != groups {
        return failed(format!("pages given for {} groups, the plan has {groups}", limits.pages.len()));
    }
    for (what, rows) in [("rows", limits.max_rows), ("logit rows", limits.max_logit_rows)] {
        if rows > MAX_ROWS {
            return failed(format!("{rows} {what} a step asked for, accepted are at most {MAX_ROWS}"));
        }
    }
    if weights.len() != expected {
        return failed(format!("{} weights given, the plan has {expected}", weights.len()));
    }
    for (&id, bytes) in recording.weights.iter().zip(weights) {
        let w = recording.weight(id);
        let size = w.ty.row_bytes(w.cols).and_then(|n| n.checked_mul(w.rows)?.checked_mul(w.experts));
        if size == Some(0) {
            let name = &recording.tensors[id.index()].name;
            return failed(format!("tensor {name} has no elements"));
        }
        if size != Some(bytes.len()) {
            let (name, found) = (recording.tensors[id.index()].name.clone(), bytes.len());
            return Err(BackendError::WeightSize { name, found, expected: size.unwrap_or(usize::MAX) });
        }
    }
    if let Some(group) = recording.groups.iter().find(|g| g.span.most() == Some(0)) {
        return failed(format!("rows see no position of group {}, not even their own", group.name));
    }
    if !matches!(recording.activation(recording.logits.tensor), Some((RowKind::Logits, _))) {
        let name = &recording.tensors[recording.logits.tensor.index()].name;
        return failed(format!("{name} cannot be logits: it has no row for each whose logits are wanted"));
    }
    recording.check().or_else(|error| failed(error.to_string()))
}

impl Compiler<'_> {
    /// What is derived from an activation holds until that is written again.
    fn forget(&mut self, ops: &[NamedOp]) {
        ops.iter().flat_map(|op| op.op.access().writes).for_each(|t| self.quantized.forget(t));
    }

    /// Where an activation lies.
    pub(crate) fn operand(&self, view: View) -> Result<Operand, BackendError> {
        let found = self.recording.activation(view.tensor).zip(self.places[view.tensor.index()]);
        let Some(((kind, stride), at)) = found else {
            let why = format!("{} is no activation", self.recording.tensors[view.tensor.index()].name);
            return Err(BackendError::Failed { backend: NAME, why });
        };
        if view.offset.checked_add(view.width).is_none_or(|end| end > stride) {
            let name = &self.recording.tensors[view.tensor.index()].name;
            let why = format!("columns {}+{} of {name}, which has {stride}", view.offset, view.width);
            return Err(BackendError::Failed { backend: NAME, why });
        }
        let data = at + (view.offset * size_of::<f32>()) as u64;
        Ok(Operand { rows: Rows { data, stride: small(stride)?, width: small(view.width)? }, kind })
    }

    /// Most rows of an activation.
    pub(crate) fn max_rows(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Step => self.limits.max_rows,
            RowKind::Logits => self.limits.max_logit_rows,
        }
    }

    /// A kernel that uses no shared memory chosen at launch.
    pub(crate) fn function(&self, variant: &Variant, entry: &str) -> Result<Function, BackendError> {
        self.function_with(variant, entry, 0)
    }

    /// A kernel that uses up to `shared` bytes of shared memory chosen at launch.
    pub(crate) fn function_with(
        &self,
        variant: &Variant,
        entry: &str,
        shared: usize,
    ) -> Result<Function, BackendError> {
        Ok(self.library.function(&self.device, variant, (entry, small(shared)?))?)
    }

    /// Zeroed memory that lives as long as the program.
    pub(crate) fn allocate(&mut self, what: &str, bytes: usize) -> Result<u64, BackendError> {
        let buffer = Buffer::new(&self.device, what, bytes)?;
        let at = buffer.at();
        self.buffers.push(buffer);
        Ok(at)
    }

    /// Zeroed memory that all calls which name it alike use one after another.
    pub(crate) fn space(&mut self, what: &'static str, bytes: usize) -> Result<u64, BackendError> {
        if let Some((_, at, _)) = self.space.iter().find(|(name, _, len)| *name == what && *len >= bytes) {
            return Ok(*at);
        }
        let at = self.allocate(what, bytes)?;
        self.space.push((what, at, bytes));
        Ok(at)
    }

    /// Memory that lives as long as the program, filled with `bytes`.
    pub(crate) fn constant(&mut self, what: &str, bytes: &[u8]) -> Result<u64, BackendError> {
        let buffer = Buffer::new(&self.device, what, bytes.len() + PADDING)?;
        buffer.fill(&self.device, bytes, &mut self.stage)?;
        let at = buffer.at();
        self.buffers.push(buffer);
        Ok(at)
    }

    /// Memory that lives as long as the result, filled with `bytes`.
    pub(crate) fn temporary(&mut self, what: &str, bytes: &[u8]) -> Result<Buffer, BackendError> {
        let buffer = Buffer::new(&self.device, what, bytes.len() + PADDING)?;
        buffer.fill(&self.device, bytes, &mut self.stage)?;
        Ok(buffer)
    }

    /// A weight that is on the device already.
    pub(crate) fn uploaded(&self, id: TensorId) -> Option<DeviceWeight> {
        self.weights.get(&id).copied()
    }

    /// The bytes of a weight in the file.
    pub(crate) fn bytes(&self, id: TensorId) -> Result<Bytes, BackendError> {
        self.bytes.get(&id).cloned().ok_or_else(|| {
            let why = format!("{} has no bytes", self.recording.tensors[id.index()].name);
            BackendError::Failed { backend: NAME, why }
        })
    }

    /// A weight on the device, uploaded when it is first asked for.
    pub(crate) fn weight(&mut self, id: TensorId) -> Result<DeviceWeight, BackendError> {
        if let Some(known) = self.weights.get(&id) {
            return Ok(*known);
        }
        let w = self.recording.weight(id).clone();
        let bytes = self.bytes(id)?;
        let data = self.constant(&self.recording.tensors[id.index()].name.clone(), &bytes)?;
        let weight = DeviceWeight { data, ty: w.ty, n_in: w.cols, n_out: w.rows };
        self.weights.insert(id, weight);
        Ok(weight)
    }

    /// The values of an f32 weight.
    pub(crate) fn values(&self, id: TensorId) -> Result<Vec<f32>, BackendError> {
        let bytes = self.bytes(id)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
    }

    /// Runs a call before those of the current wave.
    pub(crate) fn before(&mut self, call: Box<dyn Call>) {
        self.before.push(call);
    }

    /// Runs a call at the start of a step.
    pub(crate) fn first(&mut self, call: Box<dyn Call>) {
        self.first.push(call);
    }

    /// For errors about an operation.
    pub(crate) fn unsupported(op: &NamedOp, why: String) -> BackendError {
        BackendError::Unsupported { backend: NAME, op: op.name.clone(), why }
    }
}

/// A size as kernels take it.
pub(crate) fn small(n: usize) -> Result<u32, BackendError> {
    u32::try_from(n)
        .map_err(|_| BackendError::Failed { backend: NAME, why: format!("a size of {n} is too large") })
}

#[cfg(test)]
mod tests {
    use hf2q_model::{RecordOptions, toy};
    use hf2q_plan::{KvFormat, Passes};

    use super::*;

    fn limits(recording: &Recording) -> Limits {
        Limits { max_rows: 8, max_logit_rows: 8, pages: vec![4; recording.groups.len()] }
    }

    fn refused(recording: &Recording, weights: &[Bytes]) -> Option<String> {
        check(recording, weights, &limits(recording)).err().map(|e| e.to_string())
    }

    #[test]
    fn models_are_accepted() {
        for (name, model) in toy::all(2) {
            for all_rows in [false, true] {
                let options = RecordOptions { all_rows, ..RecordOptions::uniform(KvFormat::F16) };
                let plan = Plan::compile(model.record(&options).unwrap(), Passes::ALL);
                let weights = model.weights_for(&plan.recording);
                assert_eq!(refused(&plan.recording, &weights), None, "{name}");
            }
        }
    }

    #[test]
    fn what_kernels_rely_on_is_checked() {
        let (_, model) = toy::all(2).into_iter().next().unwrap();
        let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
        let weights = model.weights_for(&recording);
        let mut other = recording.clone();
        other.groups[0].span = hf2q_plan::Span::Last(0);
        assert!(refused(&other, &weights).is_some_and(|why| why.contains("rows see no position of group")));
        let mut other = recording.clone();
        let of_step = |op: &NamedOp| match &op.op {
            Op::Embed(o) => Some(o.out),
            _ => None,
        };
        other.logits = recording.ops.iter().find_map(of_step).unwrap();
        assert!(refused(&other, &weights).is_some_and(|why| why.contains("cannot be logits")));
        assert!(refused(&recording, &weights[1..]).is_some_and(|why| why.contains("weights given")));
    }
}
