//! The experts of each row and their weights.

use std::sync::{Arc, PoisonError};

use hf2q_plan::{BackendError, NamedOp, Renormalize, Route, RowKind};

use super::mat_mul_one::{self, Chooses};
use super::{Arguments, Call, Cx, Grid, Rows, kind_code, launch_ahead};
use crate::compile::Compiler;
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Rows of a block, one for each warp.
const WARPS: usize = 4;

/// Most experts: those that the lanes of a warp hold.
const EXPERTS: usize = 32 * 32;

/// Experts of a lane, in every variant.
const EACH: [usize; 3] = [4, 8, 32];

fn variant(each: usize) -> Variant {
    Variant::plain("route").with("EACH", u32::try_from(each).expect("a small number"))
}

pub(super) fn variants() -> Vec<Variant> {
    EACH.into_iter().map(variant).collect()
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Args {
    logits: Rows,
    experts: Rows,
    weights: Rows,
    scale: u64,
    of_chosen: u32,
    kind: u32,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, sized for the program's limits.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

impl Args {
    /// Nothing to choose.
    pub(super) fn none() -> Self {
        let none = Rows { data: 0, stride: 0, width: 0 };
        Self { logits: none, experts: none, weights: none, scale: 0, of_chosen: 0, kind: 0 }
    }
}

struct Routing {
    function: Function,
    args: Args,
    rows: RowKind,
    /// The product that writes the logits.
    router: Option<Arc<Chooses>>,
}

impl Call for Routing {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        if cx.count(self.rows) == 1 && self.router.as_ref().is_some_and(|router| router.is_active()) {
            return Ok(());
        }
        let blocks = [cx.count(self.rows).div_ceil(WARPS), 1, 1];
        launch_ahead(cx, self.function, Grid::new(blocks, 32 * WARPS), &self.args)
    }
}

pub(crate) fn route(c: &mut Compiler<'_>, op: &NamedOp, o: &Route) -> Result<Box<dyn Call>, BackendError> {
    if o.logits.width > EXPERTS {
        let why = format!("{} experts, at most {EXPERTS} can be chosen from", o.logits.width);
        return Err(Compiler::unsupported(op, why));
    }
    let each = EACH.into_iter().find(|each| 32 * each >= o.logits.width).unwrap_or(EXPERTS / 32);
    let function = c.function(&variant(each), "route")?;
    let (logits, experts, weights) = (c.operand(o.logits)?, c.operand(o.experts)?, c.operand(o.weights)?);
    let args = Args {
        logits: logits.rows,
        experts: experts.rows,
        weights: weights.rows,
        scale: o.expert_scale.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data),
        of_chosen: u32::from(o.renormalize == Renormalize::Chosen),
        kind: kind_code(logits.kind),
    };
    let mut routers = c.quantized.routers.iter().flatten();
    let fits = o.logits.width <= mat_mul_one::EXPERTS;
    let router = routers.find(|(view, _)| fits && *view == o.logits).map(|(_, router)| Arc::clone(router));
    if let Some(router) = &router {
        *router.route.lock().unwrap_or_else(PoisonError::into_inner) = Some(args);
    }
    Ok(Box::new(Routing { function, args, rows: logits.kind, router }))
}
