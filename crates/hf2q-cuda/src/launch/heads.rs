//! What becomes of projected queries, keys and values, in one launch.

use hf2q_plan::{BackendError, KvStore, NamedOp, Op, RowKind, View};

use super::norm::{self, Norm};
use super::{Arguments, Call, Cx, Grid, kv, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

const THREADS: usize = 128;

/// Most components of a head.
pub(crate) const WIDEST: usize = 512;

fn variant() -> Variant {
    Variant::plain("heads")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// `struct Part` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Part {
    norm: Norm,
    norms: u32,
    turns: u32,
}

/// `struct Heads` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    q: Part,
    k: Part,
    v: Part,
    store: kv::StoreArgs,
    q_heads: u32,
    k_heads: u32,
    v_heads: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; slots of an accepted step lie in the cache, rows in the arena.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct Heads {
    function: Function,
    args: Args,
}

impl Call for Heads {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let heads = self.args.q_heads + self.args.k_heads + self.args.v_heads;
        let blocks = [cx.count(RowKind::Step), heads as usize, 1];
        launch_ahead(cx, self.function, Grid::new(blocks, THREADS), &self.args)
    }
}

/// An operation on each head: what it reads and writes, and how many components a head has.
pub(crate) fn on_heads(op: &Op) -> Option<(View, View, usize)> {
    match op {
        Op::NormRope(o) => Some((o.x, o.out, o.head_dim)),
        Op::Rope(o) => Some((o.x, o.out, o.head_dim)),
        Op::RmsNorm(o) => Some((o.x, o.out, o.group)),
        _ => None,
    }
}

/// The operation, or none: then rows of `view` are stored as they are.
fn part(
    c: &mut Compiler<'_>,
    op: Option<&NamedOp>,
    (view, head_dim): (View, usize),
) -> Result<Part, BackendError> {
    let (norm, norms, turns) = match op.map(|op| &op.op) {
        Some(Op::NormRope(o)) => {
            (norm::args(c, (o.x, o.out), (o.weight, o.head_dim, o.eps), Some(&o.rope))?, 1, 1)
        }
        Some(Op::Rope(o)) => (norm::args(c, (o.x, o.out), (None, o.head_dim, 0.0), Some(&o.rope))?, 0, 1),
        Some(Op::RmsNorm(o)) => (norm::args(c, (o.x, o.out), (o.weight, o.group, o.eps), None)?, 1, 0),
        _ => (norm::args(c, (view, view), (None, head_dim, 0.0), None)?, 0, 0),
    };
    Ok(Part { norm, norms, turns })
}

/// Prepares the storing of keys and values with what is done to them and to queries before.
pub(crate) fn heads(
    c: &mut Compiler<'_>,
    [q, k, v]: [Option<&NamedOp>; 3],
    o: &KvStore,
) -> Result<Box<dyn Call>, BackendError> {
    let store = kv::store_args(c, o)?;
    let (head_dim, kv_heads) = (store.cache().head_dim(), store.cache().kv_heads());
    let q_heads = q.and_then(|op| on_heads(&op.op)).map_or(0, |(x, _, _)| x.width / head_dim);
    let keys = if store.cache().stores_keys() { kv_heads } else { 0 };
    let args = Args {
        q: part(c, q, (o.v, head_dim))?,
        k: part(c, k, (o.k.unwrap_or(o.v), head_dim))?,
        v: part(c, v, (o.v, head_dim))?,
        store,
        q_heads: small(q_heads)?,
        k_heads: small(keys)?,
        v_heads: small(kv_heads)?,
        padding: 0,
    };
    Ok(Box::new(Heads { function: c.function(&variant(), "heads")?, args }))
}
