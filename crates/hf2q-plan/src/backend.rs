//! The one dynamic boundary between the engine and what computes.

use std::sync::Arc;
use std::time::Duration;

use hf2q_gguf::Bytes;

use crate::cost::Roofline;
use crate::plan::{NamedOp, Plan, Recording};
use crate::step::{Step, StepError};
use crate::tensor::{Cache, GroupId, TensorId};

/// How large the steps of a program may get, and how much cache it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a step.
    pub max_rows: usize,
    /// Rows of a step whose logits are wanted.
    pub max_logit_rows: usize,
    /// Pages of each group's caches.
    pub pages: Vec<usize>,
}

impl Limits {
    /// Bytes of all caches of a recording.
    pub fn cache_bytes(&self, recording: &Recording) -> usize {
        let bytes = |c: &Cache| {
            let pages = self.pages.get(c.group.index()).copied().unwrap_or(0);
            pages.saturating_mul(c.page_bytes())
        };
        recording.caches.iter().map(bytes).fold(0, usize::saturating_add)
    }
}

/// Why a backend could not open or run a plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The step is malformed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The backend has no kernel for this.
    #[error("{backend} cannot run operation {op}: {why}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// Name of the operation.
        op: String,
        /// What it lacks and what it accepts.
        why: String,
    },
    /// A weight's bytes do not have the size that its type and shape need.
    #[error("tensor {name} has {found} bytes, expected {expected}")]
    WeightSize {
        /// GGUF name.
        name: String,
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// Device memory is exhausted.
    #[error("{what} needs {bytes} bytes, which could not be allocated")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        bytes: usize,
    },
    /// A number that names no output of the recording.
    #[error("output {index} was asked for, the recording keeps {outputs}")]
    NoOutput {
        /// The number.
        index: usize,
        /// How many there are.
        outputs: usize,
    },
    /// A worker thread or a device failed.
    #[error("{backend} failed: {why}")]
    Failed {
        /// Name of the backend.
        backend: &'static str,
        /// What happened.
        why: String,
    },
}

/// A slot's content to be copied to another slot, in every cache of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMove {
    /// Source slot.
    pub from: u32,
    /// Destination slot.
    pub to: u32,
}

/// Memory of a program; the weights not counted, which lie where they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramMemory {
    /// Bytes of all caches.
    pub caches: usize,
    /// Bytes of activations and of what is derived from them, at the largest step.
    pub work: usize,
}

/// Something that can run plans.
pub trait Backend: Send + Sync {
    /// Short name, for example `cpu`.
    fn name(&self) -> &'static str;

    /// One line for people: device, instruction set, threads.
    fn describe(&self) -> String;

    /// Prepares a plan. `weights` are the bytes of [`crate::Recording::weights`], in that order.
    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError>;

    /// What a program would take of memory, without opening it. `weights` as for [`Backend::open`]; matrices are not read.
    ///
    /// # Errors
    /// As [`Backend::open`], but for the memory itself.
    fn memory(
        &self,
        plan: &Plan,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<ProgramMemory, BackendError> {
        let _ = weights;
        let work = plan.arena(limits.max_rows, limits.max_logit_rows).bytes;
        Ok(ProgramMemory { caches: limits.cache_bytes(&plan.recording), work })
    }

    /// Of some weights the bytes that are on the device already, for another program: they are shared.
    fn held(&self, weights: &[Bytes]) -> u64 {
        let _ = weights;
        0
    }

    /// Bytes that are free on the device which holds weights, caches and activations. `None`: programs take the machine's
    /// memory, and weights stay where they are.
    ///
    /// # Errors
    /// If the device does not answer.
    fn free_memory(&self) -> Result<Option<u64>, BackendError> {
        Ok(None)
    }

    /// Measures what this backend can do at best, in a few seconds. Reads are from memory of `bytes` bytes, which should be
    /// more than caches hold.
    ///
    /// # Errors
    /// If so much memory cannot be had, or the backend cannot be measured.
    fn roofline(&self, bytes: usize) -> Result<Roofline, BackendError> {
        let why = format!("it cannot be measured by reading {bytes} bytes");
        Err(BackendError::Failed { backend: self.name(), why })
    }
}

/// A prepared plan with its caches.
pub trait Program: Send {
    /// What it has allocated; `None` if the backend does not count it.
    fn memory(&self) -> Option<ProgramMemory> {
        None
    }

    /// Computes a step; returns its logits `[L, vocabulary]`. With an observer, every operation it wants is shown
    /// to it after its wave.
    fn run(&mut self, step: &Step, observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError>;

    /// Output `index` of the recording ([`crate::Recording::outputs`]) as the last step left it: `[rows, width]`.
    ///
    /// # Errors
    /// The recording has no such output, or the backend fails.
    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError>;

    /// Copies slots, in order, in every cache of `group`.
    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError>;
}

/// Reads tensors of a running program.
pub trait Tensors {
    /// Values `[rows, width]` of an activation that an operation of the current wave reads or writes; `None` for anything else.
    fn values(&self, id: TensorId) -> Option<Vec<f32>>;

    /// The same for indices.
    fn indices(&self, id: TensorId) -> Option<Vec<i32>>;
}

/// Looks at operations while a program runs. A program without one carries no cost of it.
pub trait Observer {
    /// Whether [`Observer::after`] is to be called for this operation.
    fn wants(&mut self, op: &NamedOp) -> bool;

    /// Called after the wave of the operation.
    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors);

    /// Whether operations are to be run one by one and timed. [`Observer::took`] is then called in place of
    /// [`Observer::wants`] and [`Observer::after`]: looking at tensors in between would be in the times.
    fn times(&mut self) -> bool {
        false
    }

    /// Called after a timed step for every part of it, in the order in which they ran.
    fn took(&mut self, _part: &Timed<'_>) {}
}

/// An operation of a timed step, or what a backend does in preparation of one.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    /// The operation; of a preparation that serves several the first of them.
    pub op: &'a NamedOp,
    /// What kind of preparation it is, for example `quantize`; `None`: the operation itself.
    pub preparation: Option<&'static str>,
    /// How long it took, all threads together.
    pub time: Duration,
}
