//! The immutable result: operations in waves.

use crate::access::Access;
use crate::arena::{Arena, Lifetime, place};
use crate::backend::BackendError;
use crate::fuse::{Passes, fuse};
use crate::op::Op;
use crate::tensor::{Cache, CacheId, Group, RowKind, Tensor, TensorId, TensorKind, View, Weight};
use crate::waves;

/// An operation and its stable name, for example `L07.attn.q_proj`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedOp {
    /// What observers, errors and `hf2q plan` call it.
    pub name: String,
    /// The operation.
    pub op: Op,
}

/// What a model recorded, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Every tensor, by [`TensorId::index`].
    pub tensors: Vec<Tensor>,
    /// In recorded order.
    pub ops: Vec<NamedOp>,
    /// Weights, in the order in which a backend is given their bytes.
    pub weights: Vec<TensorId>,
    /// Groups of layers that share page tables.
    pub groups: Vec<Group>,
    /// Caches of layers.
    pub caches: Vec<Cache>,
    /// Values in a row of each input ([`crate::Step::inputs`]).
    pub inputs: Vec<usize>,
    /// What a step returns: `[L, vocabulary]`.
    pub logits: View,
    /// Activations that can be read after a step as well ([`crate::Program::output`]).
    pub outputs: Vec<View>,
    /// Activations that are read although nothing writes them, for their operation was [taken out](Plan::without).
    pub skipped: Vec<TensorId>,
}

impl Recording {
    /// The description of a weight.
    ///
    /// # Panics
    /// If `id` is not a weight: [`crate::Recorder::finish`] has checked every operation's operands.
    pub fn weight(&self, id: TensorId) -> &Weight {
        match &self.tensors[id.index()].kind {
            TensorKind::Weight(w) => w,
            other => panic!("{} is {other:?}, not a weight", self.tensors[id.index()].name),
        }
    }

    /// Tokens that every embedding table has a row for; `None`: it embeds none.
    pub fn vocabulary(&self) -> Option<usize> {
        let rows = self.ops.iter().filter_map(|op| match &op.op {
            Op::Embed(o) => Some(self.weight(o.table).rows),
            _ => None,
        });
        rows.min()
    }

    /// Whether an activation is read after the step: no fusion may do without it.
    pub fn is_kept(&self, id: TensorId) -> bool {
        std::iter::once(&self.logits).chain(&self.outputs).any(|view| view.tensor == id)
    }

    /// An output by its number.
    ///
    /// # Errors
    /// There are not so many.
    pub fn output(&self, index: usize) -> Result<View, BackendError> {
        let found = self.outputs.get(index).copied();
        found.ok_or(BackendError::NoOutput { index, outputs: self.outputs.len() })
    }

    /// The description of a cache.
    pub fn cache(&self, id: CacheId) -> &Cache {
        &self.caches[id.index()]
    }

    /// Which rows a tensor has, and how wide they are; `None` for weights and caches.
    pub fn activation(&self, id: TensorId) -> Option<(RowKind, usize)> {
        match self.tensors[id.index()].kind {
            TensorKind::Activation { rows, width } | TensorKind::Indices { rows, width } => {
                Some((rows, width))
            }
            TensorKind::Weight(_) | TensorKind::Cache(_) => None,
        }
    }
}

/// A recording after fusion, with its waves.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Tensors, caches and the operations that are left after fusion, ordered by wave.
    pub recording: Recording,
    /// `waves[i]` is the range of operations of wave `i`. Operations of one wave may run at the same time; between waves
    /// there is one barrier.
    pub waves: Vec<std::ops::Range<usize>>,
}

impl Plan {
    /// Fuses, groups into waves and orders.
    pub fn compile(mut recording: Recording, passes: Passes) -> Self {
        fuse(&mut recording, passes);
        let accesses: Vec<Access> = recording.ops.iter().map(|o| o.op.access()).collect();
        let wave_of = waves::assign(accesses.iter());
        let mut order: Vec<usize> = (0..wave_of.len()).collect();
        order.sort_by_key(|&i| wave_of[i]);
        let count = wave_of.iter().max().map_or(0, |w| w + 1);
        let mut waves = Vec::new();
        let mut at = 0;
        for wave in 0..count {
            let len = wave_of.iter().filter(|&&w| w == wave).count();
            waves.push(at..at + len);
            at += len;
        }
        recording.ops = order.iter().map(|&i| recording.ops[i].clone()).collect();
        Self { recording, waves }
    }

    /// Places the activations of a step of at most `rows` rows, of which `logit_rows` want logits.
    pub fn arena(&self, rows: usize, logit_rows: usize) -> Arena {
        let mut lifetimes: Vec<Option<Lifetime>> = vec![None; self.recording.tensors.len()];
        for (range, wave) in self.waves.iter().zip(0..) {
            for op in &self.recording.ops[range.clone()] {
                let access = op.op.access();
                for &tensor in access.reads.iter().chain(&access.writes) {
                    self.touch(&mut lifetimes, tensor, wave, (rows, logit_rows));
                }
            }
        }
        // What is kept is read after the last wave, even if nothing writes it.
        for view in std::iter::once(&self.recording.logits).chain(&self.recording.outputs) {
            self.touch(&mut lifetimes, view.tensor, u32::MAX, (rows, logit_rows));
        }
        let wanted: Vec<Lifetime> = lifetimes.into_iter().flatten().collect();
        place(&wanted, self.recording.tensors.len())
    }

    fn touch(&self, lifetimes: &mut [Option<Lifetime>], tensor: TensorId, wave: u32, rows: (usize, usize)) {
        let Some((kind, width)) = self.recording.activation(tensor) else { return };
        let count = match kind {
            RowKind::Step => rows.0,
            RowKind::Logits => rows.1,
        };
        let bytes = count * width * size_of::<f32>();
        let new = Lifetime { tensor, bytes, first: wave, last: wave };
        lifetimes[tensor.index()].get_or_insert(new).last = wave;
    }
}
