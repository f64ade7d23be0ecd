//! Sums, products with a constant and caps, value by value.

use hf2q_plan::{Add, BackendError, Scale, SoftCap};

use super::rows::by_column;
use super::{Arguments, Call, Operand, Rows, kind_code};
use crate::compile::Compiler;
use crate::sources::Variant;

fn variant() -> Variant {
    Variant::plain("elementwise")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// `struct Elementwise` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    a: Rows,
    b: Rows,
    out: Rows,
    /// One value; 0: none.
    by: u64,
    constant: f32,
    kind: u32,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, sized for the program's limits.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

fn call(
    c: &mut Compiler<'_>,
    entry: &str,
    (a, b, out): (Operand, Operand, Operand),
    (by, constant): (u64, f32),
) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&variant(), entry)?;
    let args = Args { a: a.rows, b: b.rows, out: out.rows, by, constant, kind: kind_code(a.kind) };
    Ok(by_column(function, args, out))
}

pub(crate) fn add(c: &mut Compiler<'_>, o: &Add) -> Result<Box<dyn Call>, BackendError> {
    let operands = (c.operand(o.a)?, c.operand(o.b)?, c.operand(o.out)?);
    call(c, "add", operands, (0, 0.0))
}

pub(crate) fn scale(c: &mut Compiler<'_>, o: &Scale) -> Result<Box<dyn Call>, BackendError> {
    let (x, out) = (c.operand(o.x)?, c.operand(o.out)?);
    let by = o.by.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data);
    call(c, "scale", (x, x, out), (by, o.factor))
}

pub(crate) fn soft_cap(c: &mut Compiler<'_>, o: &SoftCap) -> Result<Box<dyn Call>, BackendError> {
    let (x, out) = (c.operand(o.x)?, c.operand(o.out)?);
    call(c, "soft_cap", (x, x, out), (0, o.cap))
}
