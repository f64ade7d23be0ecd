//! What operations work on: weights, activations and caches.

use hf2q_gguf::TensorType;

use crate::kv::KvFormat;

/// Positions held by one page of a KV cache.
pub const PAGE: usize = 64;

/// Page-table entry of positions that have no page (dropped behind a window, or not yet reached).
pub const NO_PAGE: u32 = u32::MAX;

/// Names one tensor of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u32);

impl TensorId {
    /// Position in [`crate::Recording::tensors`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many rows an activation has; the number is known when a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// One row for every row of the step.
    Step,
    /// One row for every row of the step whose logits are wanted.
    Logits,
}

/// A matrix or vector of the model file, or a stack of matrices (one for each expert).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Storage of the elements.
    pub ty: TensorType,
    /// Length of a row: the contiguous dimension, `n_in` of a matrix product.
    pub cols: usize,
    /// Rows of one matrix: `n_out` of a matrix product; 1 for a vector.
    pub rows: usize,
    /// Matrices in the stack; 1 where there is no stack.
    pub experts: usize,
}

/// What a tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// Constant data of the model, in the order of [`crate::Recording::weights`].
    Weight(Weight),
    /// f32 values `[rows, width]`, in the arena.
    Activation {
        /// Which rows.
        rows: RowKind,
        /// Values in a row.
        width: usize,
    },
    /// i32 values `[rows, width]`, in the arena (the experts chosen by a router).
    Indices {
        /// Which rows.
        rows: RowKind,
        /// Values in a row.
        width: usize,
    },
    /// Keys and values of one layer, kept between steps.
    Cache(CacheId),
}

/// A named tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The GGUF name of a weight; for an activation the name of the operation that writes it.
    pub name: String,
    /// What it is.
    pub kind: TensorKind,
}

/// Columns `offset .. offset + width` of every row of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The activation.
    pub tensor: TensorId,
    /// First column.
    pub offset: usize,
    /// Number of columns.
    pub width: usize,
}

impl View {
    /// `width` columns from `offset`, counted within this view.
    ///
    /// # Panics
    /// If they do not lie within the view: a mistake of the caller's.
    #[must_use]
    pub fn columns(self, offset: usize, width: usize) -> Self {
        assert!(offset + width <= self.width, "columns {offset}+{width} of a view {} wide", self.width);
        Self { tensor: self.tensor, offset: self.offset + offset, width }
    }
}

/// Names a group of layers whose caches share page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub(crate) u32);

impl GroupId {
    /// Position in [`crate::Recording::groups`] and [`crate::Step::groups`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Layers that keep the same positions: all with one window, or all global ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `global` or `sliding`.
    pub name: String,
    /// A row at position `p` sees positions above `p - window`; `None`: all up to `p`.
    pub window: Option<u32>,
}

/// Names the cache of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheId(pub(crate) u32);

impl CacheId {
    /// Position in [`crate::Recording::caches`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The cache of one layer: for each slot and KV head one key and one value vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// For example `L07.kv`.
    pub name: String,
    /// Whose page tables address it.
    pub group: GroupId,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// Values in a key or value vector.
    pub head_dim: usize,
    /// Storage of keys.
    pub k_format: KvFormat,
    /// Storage of values.
    pub v_format: KvFormat,
}

impl Cache {
    /// Bytes of one page (keys and values of all heads).
    pub fn page_bytes(&self) -> usize {
        PAGE * self.kv_heads * (self.k_format.bytes(self.head_dim) + self.v_format.bytes(self.head_dim))
    }
}
