//! Stage 5: operations as data.
//!
//! In: the calls that a model makes on a [`Recorder`]. Out: a [`Plan`]: checked operations, grouped into
//! waves, with the lifetimes of their activations packed into an arena; and the traits [`Backend`] and
//! [`Program`] by which a backend runs it. The crate does no I/O.

mod access;
mod arena;
mod backend;
mod check;
mod cost;
mod error;
mod formed;
mod fuse;
mod kv;
mod op;
mod open;
mod plan;
mod print;
mod product;
mod record;
mod rope;
mod select;
mod span;
mod step;
mod tensor;
mod waves;

pub use access::Access;
pub use arena::{ALIGNMENT, Arena};
pub use backend::{
    Backend, BackendError, Limits, Observer, Program, ProgramMemory, SlotMove, Tensors, Timed,
};
pub use cost::{Cost, Roofline, StepSize};
pub use error::PlanError;
pub use formed::{Cut, FormedKeys};
pub use fuse::Passes;
pub use kv::{KvFormat, KvVector};
pub use op::*;
pub use plan::{NamedOp, Plan, Recording};
pub use product::Product;
pub use record::{AttentionParams, Norm, Recorder};
pub use select::{SelectError, matches, select};
pub use span::Span;
pub use step::{GroupStep, Row, Step, StepError};
pub use tensor::{
    Cache, CacheId, Group, GroupId, NO_PAGE, PAGE, RowKind, Tensor, TensorId, TensorKind, View, Weight,
};
