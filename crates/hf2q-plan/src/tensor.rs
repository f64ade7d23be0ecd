//! What operations work on: weights, activations and caches.

use hf2q_gguf::TensorType;

use crate::formed::{Cut, FormedKeys};
use crate::kv::{KvFormat, KvVector};
use crate::span::Span;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Caches that keep the same positions: those of all layers with one window, of all global ones, or of what layers keep
/// exactly of the last positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `global`, `sliding` or `recent`.
    pub name: String,
    /// Which positions a row sees.
    pub span: Span,
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

/// The cache of one layer: for each slot and KV head a key and a value vector, or one vector that both are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// For example `L07.kv`.
    pub name: String,
    /// Whose page tables address it.
    pub group: GroupId,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// Values in a key or value vector.
    pub head_dim: usize,
    /// Storage of keys; that of values, where keys are formed of them.
    pub k_format: KvFormat,
    /// Storage of values.
    pub v_format: KvFormat,
    /// Whether values are normalized without weights: see [`KvVector::unit`].
    pub unit_values: bool,
    /// `Some`: only values are stored, and keys are formed of them when they are read.
    pub formed_keys: Option<FormedKeys>,
}

impl Cache {
    /// How keys are stored; `None` where they are formed of values.
    pub fn keys(&self) -> Option<KvVector> {
        let stored = self.formed_keys.is_none();
        stored.then_some(KvVector { format: self.k_format, head_dim: self.head_dim, unit: false, cut: None })
    }

    /// How values are stored. Codes that keys are formed of keep their scale: by it what is no number stays none.
    pub fn values(&self) -> KvVector {
        let unit = self.unit_values && self.formed_keys.is_none();
        let cut = self.cut().map(|cut| cut.block);
        KvVector { format: self.v_format, head_dim: self.head_dim, unit, cut }
    }

    /// The order in which the components of values are stored, where it is not their own.
    pub fn cut(&self) -> Option<Cut> {
        self.formed_keys.and_then(|keys| keys.cut(self.v_format, self.head_dim))
    }

    /// Bytes that one position takes (all heads).
    pub fn position_bytes(&self) -> usize {
        self.kv_heads * (self.keys().map_or(0, KvVector::bytes) + self.values().bytes())
    }

    /// Bytes of one page (all positions, all heads).
    pub fn page_bytes(&self) -> usize {
        PAGE * self.position_bytes()
    }
}
