//! Weights and activations, each in its own vector.

use hf2q_plan::{BackendError, Recording, RowKind, Step, TensorId, TensorKind, View};

use crate::backend::allocate;

enum Content {
    /// Dequantized values of a weight.
    Weight(Vec<f32>),
    /// `[rows, width]`.
    Values(Vec<f32>),
    /// `[rows, width]`.
    Indices(Vec<i32>),
    Cache,
}

struct Slot {
    name: String,
    kind: RowKind,
    width: usize,
    content: Content,
}

/// Everything but the caches.
pub(crate) struct Memory {
    tensors: Vec<Slot>,
    rows: usize,
    logit_rows: usize,
}

impl Memory {
    pub(crate) fn new(recording: &Recording) -> Result<Self, BackendError> {
        let slot = |t: &hf2q_plan::Tensor| {
            let (kind, width, content) = match t.kind {
                TensorKind::Weight(_) => (RowKind::Step, 0, Content::Weight(vec![])),
                TensorKind::Activation { rows, width } => (rows, width, Content::Values(vec![])),
                TensorKind::Indices { rows, width } => (rows, width, Content::Indices(vec![])),
                TensorKind::Cache(_) => (RowKind::Step, 0, Content::Cache),
            };
            Slot { name: t.name.clone(), kind, width, content }
        };
        Ok(Self { tensors: recording.tensors.iter().map(slot).collect(), rows: 0, logit_rows: 0 })
    }

    pub(crate) fn set_weight(&mut self, id: TensorId, values: Vec<f32>) {
        self.tensors[id.index()].content = Content::Weight(values);
    }

    /// Sizes every activation for a step and fills it with what no operation may rely on.
    pub(crate) fn begin(&mut self, step: &Step) -> Result<(), BackendError> {
        self.rows = step.len();
        self.logit_rows = step.logit_rows.len();
        for t in &mut self.tensors {
            let rows = match t.kind {
                RowKind::Step => self.rows,
                RowKind::Logits => self.logit_rows,
            };
            let len = rows.saturating_mul(t.width);
            match &mut t.content {
                Content::Values(v) => *v = allocate(&t.name, len, f32::NAN)?,
                Content::Indices(v) => *v = vec![-1; len],
                Content::Weight(_) | Content::Cache => {}
            }
        }
        Ok(())
    }

    /// Which rows an activation has.
    pub(crate) fn kind(&self, view: View) -> RowKind {
        self.tensors[view.tensor.index()].kind
    }

    /// Rows of an activation in this step.
    pub(crate) fn rows(&self, view: View) -> usize {
        match self.kind(view) {
            RowKind::Step => self.rows,
            RowKind::Logits => self.logit_rows,
        }
    }

    pub(crate) fn weight(&self, id: TensorId) -> &[f32] {
        match &self.tensors[id.index()].content {
            Content::Weight(v) => v,
            _ => unreachable!("the recorder checked that {} is a weight", self.tensors[id.index()].name),
        }
    }

    pub(crate) fn row(&self, view: View, row: usize) -> &[f32] {
        let at = row * self.tensors[view.tensor.index()].width + view.offset;
        &self.all(view.tensor)[at..at + view.width]
    }

    /// Columns of a row that may lie outside a view (the groups of a gated unit).
    pub(crate) fn columns(&self, tensor: TensorId, row: usize, columns: std::ops::Range<usize>) -> &[f32] {
        let at = row * self.tensors[tensor.index()].width;
        &self.all(tensor)[at + columns.start..at + columns.end]
    }

    pub(crate) fn set_row(&mut self, view: View, row: usize, values: &[f32]) {
        let slot = &mut self.tensors[view.tensor.index()];
        let at = row * slot.width + view.offset;
        match &mut slot.content {
            Content::Values(v) => v[at..at + view.width].copy_from_slice(values),
            _ => unreachable!("the recorder checked that {} is an activation", slot.name),
        }
    }

    pub(crate) fn indices(&self, view: View, row: usize) -> &[i32] {
        let slot = &self.tensors[view.tensor.index()];
        let at = row * slot.width + view.offset;
        match &slot.content {
            Content::Indices(v) => &v[at..at + view.width],
            _ => unreachable!("the recorder checked that {} holds indices", slot.name),
        }
    }

    pub(crate) fn set_indices(&mut self, view: View, row: usize, values: &[i32]) {
        let slot = &mut self.tensors[view.tensor.index()];
        let at = row * slot.width + view.offset;
        match &mut slot.content {
            Content::Indices(v) => v[at..at + view.width].copy_from_slice(values),
            _ => unreachable!("the recorder checked that {} holds indices", slot.name),
        }
    }

    fn all(&self, tensor: TensorId) -> &[f32] {
        match &self.tensors[tensor.index()].content {
            Content::Values(v) => v,
            _ => unreachable!(
                "the recorder checked that {} is an activation",
                self.tensors[tensor.index()].name
            ),
        }
    }

    /// For observers; `None` for what is no activation.
    pub(crate) fn observed_values(&self, id: TensorId) -> Option<Vec<f32>> {
        match &self.tensors[id.index()].content {
            Content::Values(v) => Some(v.clone()),
            _ => None,
        }
    }

    /// For observers; `None` for what holds no indices.
    pub(crate) fn observed_indices(&self, id: TensorId) -> Option<Vec<i32>> {
        match &self.tensors[id.index()].content {
            Content::Indices(v) => Some(v.clone()),
            _ => None,
        }
    }
}
