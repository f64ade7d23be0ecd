//! A plan becomes prepared calls in phases.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{BackendError, Limits, NamedOp, Plan, Recording, RopeParams, RowKind, TensorId, View};

use crate::backend::NAME;
use crate::call::{Call, Operand};
use crate::isa::Isa;
use crate::kernels::angles::{Angles, Pages, Rotation};
use crate::kernels::expert_rows::ListRows;
use crate::kernels::picks::GroupTable;
use crate::kernels::quant_mat_mul::{QuantRows, in_octets};
use crate::kernels::quantized::Quantize;
use crate::lower::lower;
use crate::memory::Place;
use crate::validate::validate;

/// Calls that may run at the same time.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    /// Which of [`Compiled::calls`].
    pub(crate) calls: Vec<usize>,
    /// The wave of the plan that it is, or prepares.
    pub(crate) wave: usize,
}

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    /// Which operation of the plan.
    pub(crate) op: usize,
    /// What it prepares or completes; `None`: it is the operation itself.
    pub(crate) preparation: Option<&'static str>,
}

/// Rows of quantized activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantBuffer {
    pub(crate) rows: usize,
    pub(crate) n_in: usize,
    /// Whether products read many rows in octets.
    pub(crate) octets: bool,
}

/// A plan made ready.
pub(crate) struct Compiled {
    pub(crate) calls: Vec<Box<dyn Call>>,
    /// What each of `calls` is for.
    pub(crate) purposes: Vec<Purpose>,
    /// In the order in which they run, with a barrier between them.
    pub(crate) phases: Vec<Phase>,
    /// Byte offsets of activations, by tensor index.
    pub(crate) places: Vec<Option<usize>>,
    pub(crate) arena_bytes: usize,
    pub(crate) quantized: Vec<QuantBuffer>,
    /// Bytes of the angles of cached positions.
    pub(crate) table_bytes: usize,
    /// Rows of the largest matrix product.
    pub(crate) product_rows: usize,
    /// Tokens that every embedding table has a row for.
    pub(crate) vocabulary: usize,
}

impl Compiled {
    /// Bytes of activations, as they are and quantized, and of what lies beside them.
    pub(crate) fn work_bytes(&self) -> usize {
        let quantized = self.quantized.iter().map(|b| QuantRows::bytes_of(b.rows, b.n_in, b.octets));
        quantized.fold(self.arena_bytes + self.table_bytes, usize::saturating_add)
    }
}

/// Space behind the activations.
#[derive(Clone, Copy, Debug)]
struct SumSpace {
    at: usize,
    values: usize,
    /// The last wave that uses it.
    wave: usize,
}

/// State of a compilation.
pub(crate) struct Compiler<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) limits: &'a Limits,
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    weights: HashMap<TensorId, Bytes>,
    out: Compiled,
    /// Rotations of the plan.
    rotations: Vec<(RopeParams, Arc<Rotation>)>,
    /// The same with the tables of the step's angles.
    angles: Vec<(RopeParams, Place)>,
    /// The same with the angles of cached positions.
    pages: Vec<(RopeParams, Arc<Pages>)>,
    /// Quantized activations that are up to date: view, parts and buffer.
    quantized: Vec<(View, usize, usize)>,
    tables: Vec<(View, GroupTable)>,
    /// For each tensor the last wave that reads it.
    last_read: Vec<usize>,
    /// Preparations for the wave that is being lowered.
    before: Vec<usize>,
    /// What completes it.
    after: Vec<usize>,
    /// Space for sums that calls of one wave leave for those behind it.
    sums: Vec<SumSpace>,
    wave: usize,
    /// The operation that is being lowered.
    op: usize,
}

/// Prepares a plan.
pub(crate) fn compile(
    plan: &Plan,
    weights: Vec<Bytes>,
    limits: &Limits,
    (threads, isa): (usize, Isa),
) -> Result<Compiled, BackendError> {
    validate(plan, &weights, limits)?;
    let arena = plan.arena(limits.max_rows, limits.max_logit_rows);
    let recording = &plan.recording;
    let mut compiler = Compiler {
        recording,
        limits,
        threads,
        isa,
        weights: recording.weights.iter().copied().zip(weights).collect(),
        out: Compiled {
            calls: Vec::new(),
            purposes: Vec::new(),
            phases: vec![Phase::default()],
            places: arena.offsets,
            arena_bytes: arena.bytes,
            quantized: Vec::new(),
            table_bytes: 0,
            product_rows: limits.max_rows,
            vocabulary: recording.vocabulary().unwrap_or(usize::MAX),
        },
        rotations: Vec::new(),
        angles: Vec::new(),
        pages: Vec::new(),
        quantized: Vec::new(),
        tables: Vec::new(),
        last_read: last_reads(plan),
        before: Vec::new(),
        after: Vec::new(),
        sums: Vec::new(),
        wave: 0,
        op: 0,
    };
    for (wave, range) in plan.waves.iter().enumerate() {
        compiler.wave(wave, range.clone())?;
    }
    Ok(compiler.out)
}

fn last_reads(plan: &Plan) -> Vec<usize> {
    let mut last = vec![0; plan.recording.tensors.len()];
    for (wave, range) in plan.waves.iter().enumerate() {
        for op in &plan.recording.ops[range.clone()] {
            op.op.access().reads.iter().for_each(|t| last[t.index()] = wave);
        }
    }
    last
}

impl Compiler<'_> {
    fn wave(&mut self, wave: usize, range: Range<usize>) -> Result<(), BackendError> {
        self.wave = wave;
        let ops = &self.recording.ops[range.clone()];
        let last_read = &self.last_read;
        self.quantized.retain(|(view, ..)| last_read[view.tensor.index()] >= wave);
        let mut calls = Vec::new();
        for (i, op) in range.zip(ops) {
            self.op = i;
            let call = lower(self, op)?;
            calls.push(self.push(call, None));
        }
        let before = std::mem::take(&mut self.before);
        if !before.is_empty() {
            self.out.phases.push(Phase { calls: before, wave });
        }
        self.out.phases.push(Phase { calls, wave });
        let after = std::mem::take(&mut self.after);
        if !after.is_empty() {
            self.out.phases.push(Phase { calls: after, wave });
        }
        // What is derived from an activation holds until that is written again.
        for op in ops {
            for t in op.op.access().writes {
                self.quantized.retain(|(view, ..)| view.tensor != t);
                self.tables.retain(|(view, _)| view.tensor != t);
            }
        }
        Ok(())
    }

    fn push(&mut self, call: Box<dyn Call>, preparation: Option<&'static str>) -> usize {
        self.out.calls.push(call);
        self.out.purposes.push(Purpose { op: self.op, preparation });
        self.out.calls.len() - 1
    }

    /// An activation's place in the arena.
    pub(crate) fn operand(&self, view: View) -> Result<Operand, BackendError> {
        let found = self.recording.activation(view.tensor).zip(self.out.places[view.tensor.index()]);
        let Some(((rows, stride), at)) = found else {
            let why = format!("{} is no activation", self.recording.tensors[view.tensor.index()].name);
            return Err(BackendError::Failed { backend: NAME, why });
        };
        let at = at + view.offset * size_of::<f32>();
        Ok(Operand { place: Place { at, stride, width: view.width }, rows })
    }

    /// The bytes of a weight.
    pub(crate) fn bytes(&self, id: TensorId) -> Result<Bytes, BackendError> {
        self.weights.get(&id).cloned().ok_or_else(|| {
            let why = format!("{} has no bytes", self.recording.tensors[id.index()].name);
            BackendError::Failed { backend: NAME, why }
        })
    }

    /// The values of an f32 weight.
    pub(crate) fn values(&self, id: TensorId) -> Result<Vec<f32>, BackendError> {
        let bytes = self.bytes(id)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
    }

    /// Most rows of an activation.
    fn max_rows(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Step => self.limits.max_rows,
            RowKind::Logits => self.limits.max_logit_rows,
        }
    }

    /// Space behind the activations.
    fn extra(&mut self, bytes: usize) -> Result<usize, BackendError> {
        let at = self.out.arena_bytes.next_multiple_of(hf2q_plan::ALIGNMENT);
        let what = "the arena".to_owned();
        self.out.arena_bytes = at.checked_add(bytes).ok_or(BackendError::OutOfMemory { what, bytes })?;
        Ok(at)
    }

    /// Space for so many values, which no other call uses before the next wave.
    pub(crate) fn sums(&mut self, values: usize) -> Result<usize, BackendError> {
        let wave = self.wave;
        let free = self.sums.iter_mut().find(|space| space.wave != wave && space.values >= values);
        if let Some(space) = free {
            space.wave = wave;
            return Ok(space.at);
        }
        let at = self.extra(values.saturating_mul(size_of::<f32>()))?;
        self.sums.push(SumSpace { at, values, wave });
        Ok(at)
    }

    /// Has a call run behind the wave that is being lowered.
    pub(crate) fn complete(&mut self, call: Box<dyn Call>, what: &'static str) {
        let call = self.push(call, Some(what));
        self.after.push(call);
    }

    /// The table of a rotation's cosines and sines, filled at the start of a step.
    pub(crate) fn angles(&mut self, rope: &RopeParams) -> Result<Place, BackendError> {
        if let Some((_, place)) = self.angles.iter().find(|(known, _)| known == rope) {
            return Ok(*place);
        }
        let rotation = self.rotation(rope)?;
        let width = 2 * rotation.pairs();
        let at = self.extra(self.limits.max_rows * width * size_of::<f32>())?;
        let place = Place { at, stride: width, width };
        let call = self.push(Box::new(Angles { rotation, table: place }), Some("angles"));
        self.out.phases[0].calls.push(call);
        self.angles.push((*rope, place));
        Ok(place)
    }

    fn rotation(&mut self, rope: &RopeParams) -> Result<Arc<Rotation>, BackendError> {
        if let Some((_, rotation)) = self.rotations.iter().find(|(known, _)| known == rope) {
            return Ok(Arc::clone(rotation));
        }
        let factors = rope.factors.map(|id| self.values(id)).transpose()?;
        let rotation = Arc::new(Rotation::new(rope, factors.as_deref()));
        self.rotations.push((*rope, Arc::clone(&rotation)));
        Ok(rotation)
    }

    /// The angles of cached positions: as many pages as a sequence without window can have.
    pub(crate) fn pages(&mut self, rope: &RopeParams) -> Result<Arc<Pages>, BackendError> {
        if let Some((_, pages)) = self.pages.iter().find(|(known, _)| known == rope) {
            return Ok(Arc::clone(pages));
        }
        let most = self.limits.pages.iter().copied().max().unwrap_or(0);
        let pages = Arc::new(Pages::new(self.rotation(rope)?, most));
        self.out.table_bytes += pages.bytes();
        self.pages.push((*rope, Arc::clone(&pages)));
        Ok(pages)
    }

    /// The buffer with the quantized rows of an activation, each cut into `parts`.
    pub(crate) fn quantize(&mut self, view: View, parts: usize) -> Result<usize, BackendError> {
        if let Some((.., buffer)) = self.quantized.iter().find(|(v, p, _)| (*v, *p) == (view, parts)) {
            return Ok(*buffer);
        }
        let x = self.operand(view)?;
        let rows = self.max_rows(x.rows) * parts;
        // Rows of experts are gathered by each product.
        let octets = parts == 1 && in_octets(self.isa, rows);
        let wanted = QuantBuffer { rows, n_in: view.width / parts, octets };
        self.out.product_rows = self.out.product_rows.max(rows);
        let is_free = |b: usize| self.quantized.iter().all(|&(.., used)| used != b);
        let free = (0..self.out.quantized.len()).find(|&b| self.out.quantized[b] == wanted && is_free(b));
        let buffer = free.unwrap_or_else(|| {
            self.out.quantized.push(wanted);
            self.out.quantized.len() - 1
        });
        let call = self.push(Box::new(Quantize { x, parts, into: buffer, octets }), Some("quantize"));
        self.before.push(call);
        self.quantized.push((view, parts, buffer));
        Ok(buffer)
    }

    /// The lists of rows of each expert.
    pub(crate) fn expert_rows(&mut self, view: View, experts: usize) -> Result<GroupTable, BackendError> {
        if let Some((_, table)) = self.tables.iter().find(|(v, t)| *v == view && t.experts == experts) {
            return Ok(*table);
        }
        let x = self.operand(view)?;
        let capacity = self.max_rows(x.rows) * view.width;
        let at = self.extra(GroupTable::words(experts, capacity) * size_of::<u32>())?;
        let table = GroupTable { at, experts, capacity };
        let call = self.push(Box::new(ListRows { experts: x, table }), Some("list_rows"));
        self.before.push(call);
        self.tables.push((view, table));
        Ok(table)
    }

    /// For errors about an operation.
    pub(crate) fn unsupported(op: &NamedOp, why: String) -> BackendError {
        BackendError::Unsupported { backend: NAME, op: op.name.clone(), why }
    }
}
