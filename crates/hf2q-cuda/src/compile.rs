//! A plan becomes prepared launches, with all memory that they use.

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    Arena, BackendError, Limits, NamedOp, Op, Plan, ProgramMemory, Recording, RopeParams, RowKind, TensorId,
    View,
};

use crate::backend::{Loading, NAME, OnLoading};
use crate::device::Device;
use crate::error::CudaError;
use crate::fuse;
use crate::launch::kv::{DeviceCache, Mover, mover};
use crate::launch::mat_mul::Quantized;
use crate::launch::measure::{Measuring, What};
use crate::launch::{Call, Operand, Rows};
use crate::library::{Function, Library};
use crate::lower::lower;
use crate::memory::{Buffer, Pinned};
use crate::shelf::{Form, Key, Shared, Shelf};
use crate::sources::Variant;

/// Bytes through which weights travel.
const STAGE: usize = 64 << 20;

/// Calls of a wave; those of `before` run first, each for operations from that of its position on.
#[derive(Default)]
pub(crate) struct Wave {
    pub(crate) before: Vec<(usize, Box<dyn Call>)>,
    pub(crate) calls: Vec<Box<dyn Call>>,
}

/// A plan made ready.
pub(crate) struct Compiled {
    pub(crate) device: Device,
    /// What runs before the first wave: tables that depend on the step.
    pub(crate) first: Vec<(usize, Box<dyn Call>)>,
    /// One for each wave of the plan.
    pub(crate) waves: Vec<Wave>,
    /// The same in fewer launches, where nobody watches.
    pub(crate) fused: Vec<Box<dyn Call>>,
    /// Addresses of activations, by tensor index.
    pub(crate) places: Vec<Option<u64>>,
    /// Activations.
    pub(crate) arena: Buffer,
    /// Weights and everything else that is allocated for good.
    _buffers: Vec<Buffer>,
    _shared: Vec<Arc<Shared>>,
    /// Moves of slots.
    pub(crate) mover: Mover,
    /// Tokens that every embedding table has a row for.
    pub(crate) vocabulary: usize,
    /// What was allocated beside the weights.
    pub(crate) memory: ProgramMemory,
    spin: Measuring,
}

impl Compiled {
    /// Has the device wait for some nanoseconds.
    pub(crate) fn wait(&self, device: &Device, nanoseconds: u64) -> Result<(), CudaError> {
        self.spin.with_count(nanoseconds).queue(device)
    }

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
    loading: Option<&'a OnLoading>,
    /// Through which bytes travel; `None`: memory is only counted.
    stage: Option<Pinned>,
    /// Bytes that were asked for, as the driver gives them.
    taken: usize,
    /// Bytes of weights that were copied.
    copied: usize,
    buffers: Vec<Buffer>,
    shelf: &'a Shelf,
    /// Weights that other programs have uploaded.
    shared: Vec<Arc<Shared>>,
    /// Weights that are uploaded for this one, and others to come.
    own: Vec<(Key, Shared)>,
    places: Vec<Option<u64>>,
    /// Position of the operation that is prepared.
    op: usize,
    first: Vec<(usize, Box<dyn Call>)>,
    before: Vec<(usize, Box<dyn Call>)>,
    /// Quantized activations that are up to date.
    pub(crate) quantized: Quantized,
    /// Rotations of the plan and the addresses of their tables of angles.
    pub(crate) angles: Vec<(RopeParams, u64)>,
    /// By [`hf2q_plan::CacheId::index`].
    pub(crate) caches: HashMap<usize, DeviceCache>,
    /// Memory that calls use one after another: address and bytes.
    space: Vec<(&'static str, u64, usize)>,
}

/// Where a plan is prepared, and who is told.
pub(crate) type On<'a> = (Device, &'a Library, &'a Shelf, Option<&'a OnLoading>);

/// Prepares a plan: allocates, uploads weights, compiles kernels.
pub(crate) fn compile(
    plan: &Plan,
    weights: Vec<Bytes>,
    limits: &Limits,
    (device, library, shelf, loading): On<'_>,
) -> Result<Compiled, BackendError> {
    let bytes: usize = weights.iter().map(|w| w.len()).sum();
    let stage = Pinned::new(&device, "the way of weights to the device", STAGE)?;
    let spin = Measuring::new(&device, library, What::Spin, (0, 0, 0))?;
    let on = (device, library, shelf, loading);
    let (mut compiler, arena) = Compiler::new(plan, weights, limits, (on, Some(stage)))?;
    let memory = Buffer::new(&compiler.device, "the arena of activations", arena.bytes)?;
    let place = |at: &Option<usize>| at.map(|at| memory.at() + at as u64);
    compiler.places = arena.offsets.iter().map(place).collect();
    let (waves, mover) = compiler.lower(plan)?;
    let shared = compiler.device.info.shared();
    let fused = fuse::lower(&mut compiler, plan, &fuse::parts(plan, shared))?;
    let used = compiler.used(bytes);
    if let Some(loading) = loading {
        loading.tell(&Loading::Weights { done: bytes as u64, total: bytes as u64 });
    }
    let Compiler { device, first, places, buffers, mut shared, own, .. } = compiler;
    device.wait("preparing a plan")?;
    for (key, own) in own {
        let own = Arc::new(own);
        shelf.add(key, &own);
        shared.push(own);
    }
    let vocabulary = vocabulary(&plan.recording);
    Ok(Compiled {
        device,
        first,
        waves,
        fused,
        places,
        arena: memory,
        _buffers: buffers,
        _shared: shared,
        mover,
        vocabulary,
        memory: used,
        spin,
    })
}

/// Counts the memory that [`compile`] would take. Nothing is allocated, copied or compiled.
pub(crate) fn count(
    plan: &Plan,
    weights: Vec<Bytes>,
    limits: &Limits,
    (device, library, shelf): (Device, &Library, &Shelf),
) -> Result<ProgramMemory, BackendError> {
    let largest = weights.iter().map(|w| w.len()).max().unwrap_or(0);
    let bytes = weights.iter().map(|w| w.len()).sum();
    let (mut compiler, arena) = Compiler::new(plan, weights, limits, ((device, library, shelf, None), None))?;
    compiler.places = arena.offsets.iter().map(|at| at.map(|at| FAKE + at as u64)).collect();
    compiler.lower(plan)?;
    let shared = compiler.device.info.shared();
    fuse::lower(&mut compiler, plan, &fuse::parts(plan, shared))?;
    // A weight that is packed lies there twice for a moment.
    compiler.taken += granted(largest);
    Ok(compiler.used(bytes))
}

/// An address that is never used.
const FAKE: u64 = 1 << 40;

/// Bytes that the driver gives for so many.
fn granted(bytes: usize) -> usize {
    let unit = if bytes < 1 << 20 { 512 } else { 2 << 20 };
    bytes.checked_next_multiple_of(unit).unwrap_or(usize::MAX)
}

fn vocabulary(recording: &Recording) -> usize {
    let rows = recording.ops.iter().filter_map(|op| match &op.op {
        Op::Embed(o) => Some(recording.weight(o.table).rows),
        _ => None,
    });
    rows.min().unwrap_or(usize::MAX)
}

impl<'a> Compiler<'a> {
    /// Checks a plan and places its activations.
    fn new(
        plan: &'a Plan,
        weights: Vec<Bytes>,
        limits: &'a Limits,
        ((device, library, shelf, loading), stage): (On<'a>, Option<Pinned>),
    ) -> Result<(Self, Arena), BackendError> {
        let recording = &plan.recording;
        recording.check_open(NAME, &weights, limits)?;
        if !matches!(recording.activation(recording.logits.tensor), Some((RowKind::Logits, _))) {
            let name = &recording.tensors[recording.logits.tensor.index()].name;
            let why = format!("{name} cannot be logits: it has no row for each whose logits are wanted");
            return Err(BackendError::Failed { backend: NAME, why });
        }
        let waves = fuse::waves(plan, &fuse::parts(plan, device.info.shared()));
        let arena =
            Plan { recording: recording.clone(), waves }.arena(limits.max_rows, limits.max_logit_rows);
        if arena.offsets[recording.logits.tensor.index()].is_none() {
            let why = "no operation writes the logits".to_owned();
            return Err(BackendError::Failed { backend: NAME, why });
        }
        let compiler = Compiler {
            recording,
            limits,
            device,
            library,
            loading,
            bytes: recording.weights.iter().copied().zip(weights).collect(),
            weights: HashMap::new(),
            stage,
            taken: granted(arena.bytes),
            copied: 0,
            buffers: Vec::new(),
            shelf,
            shared: Vec::new(),
            own: Vec::new(),
            places: Vec::new(),
            op: 0,
            first: Vec::new(),
            before: Vec::new(),
            quantized: Quantized::default(),
            angles: Vec::new(),
            caches: HashMap::new(),
            space: Vec::new(),
        };
        Ok((compiler, arena))
    }

    /// Prepares the operations, wave by wave.
    fn lower(&mut self, plan: &Plan) -> Result<(Vec<Wave>, Mover), BackendError> {
        let mut waves = Vec::new();
        for range in &plan.waves {
            let ops = &plan.recording.ops[range.clone()];
            let mut calls = Vec::new();
            for (i, op) in range.clone().zip(ops) {
                self.op = i;
                calls.push(lower(self, op)?);
            }
            let before = std::mem::take(&mut self.before);
            self.forget(ops.iter());
            waves.push(Wave { before, calls });
        }
        let mover = mover(self, &plan.recording)?;
        Ok((waves, mover))
    }

    /// What was asked for beside `weights` bytes of weights. Those of a packed form that is larger count as work.
    fn used(&self, weights: usize) -> ProgramMemory {
        let caches = self.limits.cache_bytes(self.recording);
        ProgramMemory { caches, work: self.taken.saturating_sub(caches).saturating_sub(weights) }
    }
}

impl Compiler<'_> {
    /// What is derived from an activation holds until that is written again.
    pub(crate) fn forget<'o>(&mut self, ops: impl Iterator<Item = &'o NamedOp>) {
        ops.flat_map(|op| op.op.access().writes).for_each(|t| self.quantized.forget(t));
    }

    /// What runs before the operation that has been prepared last.
    pub(crate) fn take_before(&mut self) -> impl Iterator<Item = Box<dyn Call>> + use<> {
        std::mem::take(&mut self.before).into_iter().map(|(_, call)| call)
    }

    /// Where an activation lies.
    pub(crate) fn operand(&self, view: View) -> Result<Operand, BackendError> {
        let found = self.recording.activation(view.tensor).zip(self.places[view.tensor.index()]);
        let Some(((kind, stride), at)) = found else {
            let why = format!("{} is no activation", self.recording.tensors[view.tensor.index()].name);
            return Err(BackendError::Failed { backend: NAME, why });
        };
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
        if self.counts_only() {
            return Ok(Function(std::ptr::null_mut()));
        }
        Ok(self.library.function(&self.device, variant, (entry, small(shared)?))?)
    }

    /// Whether memory is only counted: nothing may be launched, and addresses mean nothing.
    pub(crate) fn counts_only(&self) -> bool {
        self.stage.is_none()
    }

    /// Zeroed memory that lives as long as the program.
    pub(crate) fn allocate(&mut self, what: &str, bytes: usize) -> Result<u64, BackendError> {
        let at = FAKE + self.taken as u64;
        self.taken = self.taken.saturating_add(granted(bytes));
        if self.counts_only() {
            return Ok(at);
        }
        let buffer = Buffer::new(&self.device, what, bytes)?;
        let at = buffer.at();
        self.buffers.push(buffer);
        Ok(at)
    }

    /// Memory for a weight that programs share, and whether it is filled already.
    pub(crate) fn shared(
        &mut self,
        what: &str,
        (weight, form): (&Bytes, Form),
        bytes: usize,
    ) -> Result<(u64, bool), BackendError> {
        let at = FAKE + self.taken as u64;
        self.taken = self.taken.saturating_add(granted(bytes));
        if self.counts_only() {
            return Ok((at, true));
        }
        let key = Key::new(weight, form);
        if let Some(found) = self.shelf.find(&key) {
            let at = found.buffer.at();
            self.shared.push(found);
            return Ok((at, true));
        }
        let buffer = Buffer::new(&self.device, what, bytes)?;
        let at = buffer.at();
        self.own.push((key, Shared::new(buffer, weight.clone())));
        Ok((at, false))
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
        let at = self.allocate(what, bytes.len().saturating_add(PADDING))?;
        if let (Some(stage), Some(buffer)) = (&mut self.stage, self.buffers.last()) {
            buffer.fill(&self.device, bytes, (stage, &mut |_| ()))?;
        }
        Ok(at)
    }

    /// Memory that lives as long as the result, filled with the bytes of a weight.
    pub(crate) fn temporary(&mut self, what: &str, bytes: &[u8]) -> Result<Buffer, BackendError> {
        let buffer = Buffer::new(&self.device, what, bytes.len() + PADDING)?;
        self.copy_weight(&buffer, bytes)?;
        Ok(buffer)
    }

    /// Copies the bytes of a weight, and says how far all are.
    fn copy_weight(&mut self, to: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let Some(stage) = &mut self.stage else { return Ok(()) };
        let total: usize = self.bytes.values().map(|w| w.len()).sum();
        let (loading, copied) = (self.loading, self.copied);
        let mut tell = |done: usize| {
            let done = (copied + done).min(total);
            if let Some(loading) = loading {
                loading.tell(&Loading::Weights { done: done as u64, total: total as u64 });
            }
        };
        to.fill(&self.device, bytes, (stage, &mut tell))?;
        self.copied += bytes.len();
        Ok(())
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
        let name = self.recording.tensors[id.index()].name.clone();
        let (data, is_there) =
            self.shared(&name, (&bytes, Form::Raw), bytes.len().saturating_add(PADDING))?;
        if !is_there && let Some((key, own)) = self.own.pop() {
            self.copy_weight(&own.buffer, &bytes)?;
            self.own.push((key, own));
        }
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
        self.before.push((self.op, call));
    }

    /// Runs a call at the start of a step.
    pub(crate) fn first(&mut self, call: Box<dyn Call>) {
        self.first.push((self.op, call));
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
    use super::*;

    #[test]
    fn memory_is_given_in_pieces() {
        assert_eq!([0, 1, 512, 513].map(granted), [0, 512, 512, 1024]);
        assert_eq!([(1 << 20) - 1, 1 << 20, (2 << 20) + 1].map(granted), [1 << 20, 2 << 20, 4 << 20]);
        assert_eq!(granted(usize::MAX), usize::MAX);
    }
}
