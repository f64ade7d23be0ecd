//! Norms and rotations by position.

use hf2q_plan::{
    BackendError, NormAdd, NormRope, Pairing, RmsNorm, Rope, RopeParams, RowKind, TensorId, View,
};

use super::{Arguments, Call, Cx, Grid, MAX_Y, Rows, kind_code, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

fn variant() -> Variant {
    Variant::plain("norm")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// Threads for a group of `width` columns: a part of the order of additions, so never of anything else.
pub(super) fn threads(width: usize) -> usize {
    (width.div_ceil(128) * 32).min(1024)
}

/// `struct Norm` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Norm {
    x: Rows,
    residual: Rows,
    out: Rows,
    weight: u64,
    group: u32,
    eps: f32,
    kind: u32,
    pairs: u32,
    adjacent: u32,
    padding: u32,
    angles: u64,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, and the table of angles has a row for
// each of a step, both sized for the program's limits.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Norm {}

struct Normalize {
    function: Function,
    args: Norm,
    rows: RowKind,
}

impl Call for Normalize {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let groups = (self.args.x.width / self.args.group) as usize;
        let blocks = [groups * cx.count(self.rows), 1, 1];
        launch_ahead(cx, self.function, Grid::new(blocks, threads(self.args.group as usize)), &self.args)
    }
}

/// What all of them have.
pub(super) fn args(
    c: &mut Compiler<'_>,
    (x, out): (View, View),
    (weight, group, eps): (Option<TensorId>, usize, f32),
    turn: Option<&RopeParams>,
) -> Result<Norm, BackendError> {
    let (x, out) = (c.operand(x)?, c.operand(out)?);
    Ok(Norm {
        x: x.rows,
        residual: x.rows,
        out: out.rows,
        weight: weight.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data),
        group: small(group)?,
        eps,
        kind: kind_code(x.kind),
        pairs: small(turn.map_or(0, |t| t.dims / 2))?,
        adjacent: u32::from(turn.is_some_and(|t| t.pairing == Pairing::Adjacent)),
        padding: 0,
        angles: turn.map_or(Ok(0), |t| angles(c, t))?,
    })
}

fn norm(
    c: &mut Compiler<'_>,
    entry: &str,
    (x, out, residual): (View, View, Option<View>),
    of_group: (Option<TensorId>, usize, f32),
    turn: Option<&RopeParams>,
) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&variant(), entry)?;
    let mut args = args(c, (x, out), of_group, turn)?;
    if let Some(residual) = residual {
        args.residual = c.operand(residual)?.rows;
    }
    Ok(Box::new(Normalize { function, args, rows: c.operand(x)?.kind }))
}

pub(crate) fn rms_norm(c: &mut Compiler<'_>, o: &RmsNorm) -> Result<Box<dyn Call>, BackendError> {
    norm(c, "rms_norm", (o.x, o.out, None), (o.weight, o.group, o.eps), None)
}

pub(crate) fn norm_add(c: &mut Compiler<'_>, o: &NormAdd) -> Result<Box<dyn Call>, BackendError> {
    norm(c, "norm_add", (o.x, o.out, Some(o.residual)), (o.weight, o.x.width, o.eps), None)
}

pub(crate) fn norm_rope(c: &mut Compiler<'_>, o: &NormRope) -> Result<Box<dyn Call>, BackendError> {
    norm(c, "norm_rope", (o.x, o.out, None), (o.weight, o.head_dim, o.eps), Some(&o.rope))
}

pub(crate) fn rope(c: &mut Compiler<'_>, o: &Rope) -> Result<Box<dyn Call>, BackendError> {
    norm(c, "rope", (o.x, o.out, None), (None, o.head_dim, 0.0), Some(&o.rope))
}

#[derive(Clone, Copy)]
#[repr(C)]
struct AngleArgs {
    frequencies: u64,
    table: u64,
    magnitude: f64,
    pairs: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; the table has a row for each of a step.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for AngleArgs {}

/// Fills the table of a step's cosines and sines.
struct Angles {
    function: Function,
    args: AngleArgs,
}

/// Pairs of a block.
const PAIRS: usize = 128;

impl Call for Angles {
    fn preparation(&self) -> &'static str {
        "angles"
    }

    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let blocks = [(self.args.pairs as usize).div_ceil(PAIRS), cx.rows.min(MAX_Y), 1];
        launch_ahead(cx, self.function, Grid::new(blocks, PAIRS), &self.args)
    }
}

/// The address of a rotation's table, which is filled at the start of a step.
pub(crate) fn angles(c: &mut Compiler<'_>, rope: &RopeParams) -> Result<u64, BackendError> {
    if let Some((_, table)) = c.angles.iter().find(|(known, _)| known == rope) {
        return Ok(*table);
    }
    let frequencies = frequencies(c, rope)?;
    let pairs = frequencies.len();
    let frequencies: Vec<u8> = frequencies.iter().flat_map(|f| f.to_le_bytes()).collect();
    let table = c.allocate("the table of angles", c.limits.max_rows * 2 * pairs * size_of::<f32>())?;
    let args = AngleArgs {
        frequencies: c.constant("frequencies", &frequencies)?,
        table,
        magnitude: f64::from(rope.magnitude),
        pairs: small(pairs)?,
        padding: 0,
    };
    let function = c.function(&variant(), "angles")?;
    c.first(Box::new(Angles { function, args }));
    c.angles.push((*rope, table));
    Ok(table)
}

/// Angle per position of each pair.
pub(crate) fn frequencies(c: &Compiler<'_>, rope: &RopeParams) -> Result<Vec<f64>, BackendError> {
    let factors = rope.factors.map(|id| c.values(id)).transpose()?;
    Ok(rope.frequencies(factors.as_deref()))
}
