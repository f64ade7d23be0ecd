//! Activations as signed bytes, quantized once for all products of a wave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hf2q_plan::{Activation, BackendError, Glu, RowKind, View};

use super::mat_mul_one::{self, AtOneRow, Gated};
use super::{Arguments, Call, Cx, Grid, Rows, kind_code, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Values that a block of threads quantizes.
const BLOCK: usize = 1024;

pub(super) fn variant() -> Variant {
    Variant::plain("mat_mul_quantize")
}

/// Pieces of memory that hold what is derived from activations. A piece is used again once a later wave needs one, since
/// launches run in the order in which they are prepared, but what is derived for a wave is derived before all its calls.
pub(super) struct Slots<K> {
    slots: Vec<Slot<K>>,
    wave: usize,
}

struct Slot<K> {
    at: u64,
    bytes: usize,
    holds: Option<K>,
    /// The last wave that reads it.
    used: usize,
}

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), wave: 0 }
    }
}

/// Pieces that are kept for waves to come before one is overwritten.
const KEPT: usize = 6;

impl<K: PartialEq> Slots<K> {
    /// Ends a wave, after which what `stale` names holds no more.
    pub(super) fn end_wave(&mut self, stale: impl Fn(&K) -> bool) {
        self.wave += 1;
        for slot in &mut self.slots {
            if slot.holds.as_ref().is_some_and(&stale) {
                slot.holds = None;
            }
        }
    }

    /// Where `key` is held.
    pub(super) fn find(&mut self, key: &K) -> Option<u64> {
        let slot = self.slots.iter_mut().find(|slot| slot.holds.as_ref() == Some(key))?;
        slot.used = self.wave;
        Some(slot.at)
    }

    /// A piece of memory of an earlier wave for `key`, of those that hold nothing which is needed still.
    pub(super) fn reuse(&mut self, key: K, bytes: usize, is_needed: impl Fn(&K) -> bool) -> Option<u64> {
        if self.slots.len() < KEPT {
            return None;
        }
        let free = self.slots.iter_mut().filter(|slot| slot.used != self.wave && slot.bytes >= bytes);
        let free = free.filter(|slot| !slot.holds.as_ref().is_some_and(&is_needed));
        let slot = free.min_by_key(|slot| (slot.used, slot.bytes))?;
        (slot.holds, slot.used) = (Some(key), self.wave);
        Some(slot.at)
    }

    /// Adds a piece for `key`.
    pub(super) fn add(&mut self, key: K, at: u64, bytes: usize) {
        self.slots.push(Slot { at, bytes, holds: Some(key), used: self.wave });
    }
}

/// Quantized rows on the device: `struct Coded` of the kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Coded {
    pub(super) codes: u64,
    /// Four floats for each 32 codes.
    pub(super) groups: u64,
    n_in: u32,
    n_pad: u32,
}

impl Coded {
    /// No rows.
    pub(super) fn none() -> Self {
        Self { codes: 0, groups: 0, n_in: 0, n_pad: 0 }
    }
}

/// `Quantize` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    x: Rows,
    up: Rows,
    to: Coded,
    kind: u32,
    parts: u32,
    apart: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, and codes and groups have been allocated
// for as many rows as the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct Quantize {
    function: Function,
    args: Args,
    kind: RowKind,
    /// Of gated units that products make themselves where there is one row: whether some do not.
    needed: Option<Arc<AtomicBool>>,
}

impl Quantize {
    fn is_made_elsewhere(&self) -> bool {
        self.needed.as_ref().is_some_and(|needed| !needed.load(Ordering::Relaxed))
    }
}

impl Call for Quantize {
    fn preparation(&self) -> &'static str {
        "quantize"
    }

    fn at_one_row(&self) -> AtOneRow {
        if self.is_made_elsewhere() { AtOneRow::Nothing } else { AtOneRow::Own }
    }

    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        if cx.count(self.kind) == 1 && self.is_made_elsewhere() {
            return Ok(());
        }
        let rows = cx.count(self.kind) * self.args.parts as usize;
        let blocks = [rows, (self.args.to.n_pad as usize).div_ceil(BLOCK), 1];
        launch_ahead(cx, self.function, Grid::new(blocks, BLOCK / 4), &self.args)
    }
}

/// Where rows are quantized to.
pub(super) struct Place {
    pub(super) coded: Coded,
    /// Whether they have been.
    pub(super) done: bool,
}

/// Where an activation is quantized to whose rows are `parts` quantized rows each. The caller sees to it that it is.
pub(super) fn place(c: &mut Compiler<'_>, x: View, parts: usize) -> Result<Place, BackendError> {
    let kind = c.operand(x)?.kind;
    let n_in = x.width / parts;
    let n_pad = n_in.next_multiple_of(256);
    let rows = c.max_rows(kind) * parts;
    // A byte a code, and 16 bytes for each 32.
    let (codes_len, bytes) = (rows * n_pad, rows * n_pad + rows * n_pad / 2);
    let (n_in, n_pad) = (small(n_in)?, small(n_pad)?);
    let placed = |at: u64| Coded { codes: at, groups: at + codes_len as u64, n_in, n_pad };
    if let Some(at) = c.quantized.activations.find(&(x, parts)) {
        return Ok(Place { coded: placed(at), done: true });
    }
    let last_read = &c.quantized.last_read;
    let is_needed = |(view, _): &(View, usize)| last_read.is_needed(view.tensor);
    let at = match c.quantized.activations.reuse((x, parts), bytes, is_needed) {
        Some(at) => at,
        None => {
            let at = c.allocate("quantized activations", bytes)?;
            c.quantized.activations.add((x, parts), at, bytes);
            at
        }
    };
    Ok(Place { coded: placed(at), done: false })
}

/// Quantizes what an operation has written, or `None` where that has been done.
pub(super) fn quantize(
    c: &mut Compiler<'_>,
    x: View,
    parts: usize,
) -> Result<(Coded, Option<Box<dyn Call>>), BackendError> {
    let Place { coded, done } = place(c, x, parts)?;
    if done {
        return Ok((coded, None));
    }
    let operand = c.operand(x)?;
    let (kind, rows) = (kind_code(operand.kind), operand.rows);
    let args = Args { x: rows, up: rows, to: coded, kind, parts: small(parts)?, apart: 0, padding: 0 };
    let function = c.function(&variant(), "quantize_rows")?;
    Ok((coded, Some(Box::new(Quantize { function, args, kind: operand.kind, needed: None }))))
}

/// An activation whose rows are `parts` quantized rows each; it is quantized before the wave unless that has been done.
pub(super) fn quantized(c: &mut Compiler<'_>, x: View, parts: usize) -> Result<Coded, BackendError> {
    let (coded, call) = quantize(c, x, parts)?;
    if let Some(call) = call {
        c.before(call);
    }
    Ok(coded)
}

/// Prepares gated units of which only quantized values are kept, `parts` quantized rows for each row.
pub(crate) fn gated(c: &mut Compiler<'_>, o: &Glu, parts: usize) -> Result<Box<dyn Call>, BackendError> {
    let entry = match o.act {
        Activation::GeluTanh => "quantize_gelu",
        Activation::Silu => "quantize_silu",
    };
    let (gate, up) = (c.operand(o.gate)?, c.operand(o.up)?);
    let to = place(c, o.out, parts)?.coded;
    let (kind, apart) = (kind_code(gate.kind), small(o.stride)?);
    let args = Args { x: gate.rows, up: up.rows, to, kind, parts: small(parts)?, apart, padding: 0 };
    let function = c.function(&variant(), entry)?;
    // Threads of products read four columns at a time.
    let whole = |rows: Rows| rows.data.is_multiple_of(16) && rows.stride.is_multiple_of(4);
    let fits = whole(gate.rows) && whole(up.rows) && apart.is_multiple_of(4) && mat_mul_one::makes(o, parts);
    let needed = fits.then(|| Arc::new(AtomicBool::new(false)));
    if let Some(needed) = needed.clone() {
        let act = if o.act == Activation::GeluTanh { 1 } else { 2 };
        let (view, x, up) = (o.out, gate.rows, up.rows);
        c.quantized.gated.push(Gated { view, parts, x, up, act, apart, needed });
    }
    Ok(Box::new(Quantize { function, args, kind: gate.kind, needed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_not_overwritten_in_the_wave_that_reads_it() {
        let mut slots = Slots::default();
        for key in 0..KEPT + 1 {
            assert_eq!(slots.reuse(key, 10, |_| false), None);
            slots.add(key, 100 + key as u64, 10);
        }
        slots.end_wave(|&key| key == 3);
        assert_eq!(slots.find(&3), None);
        assert_eq!(slots.find(&0), Some(100));
        assert_eq!(slots.reuse(50, 11, |_| false), None, "too large for any");
        let taken: Vec<_> = (50..50 + KEPT).map(|key| slots.reuse(key, 10, |_| false)).collect();
        assert_eq!(taken, (0..KEPT as u64).map(|i| Some(101 + i)).collect::<Vec<_>>());
        assert_eq!(slots.reuse(70, 10, |_| false), None, "all are in use");
        assert_eq!(slots.find(&1), None);
    }

    #[test]
    fn what_is_read_later_is_not_overwritten() {
        let mut slots = Slots::default();
        for key in 0..KEPT {
            slots.add(key, 100 + key as u64, if key == 4 { 20 } else { 10 });
        }
        slots.end_wave(|_| false);
        assert_eq!(slots.reuse(50, 20, |&key| key == 4), None, "only that one is large enough");
        assert_eq!(slots.find(&4), Some(104));
        slots.end_wave(|_| false);
        assert_eq!(slots.reuse(50, 20, |&key| key == 0), Some(104));
    }
}
