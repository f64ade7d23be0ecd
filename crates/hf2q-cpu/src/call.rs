//! A prepared operation: how much work it is in a step, and how a part of it is run.

use std::ops::Range;

use hf2q_plan::RowKind;

use crate::cache::CacheMemory;
use crate::isa::Isa;
use crate::kernels::quant_mat_mul::{self, QuantRows};
use crate::memory::{Memory, Place, Rows};
use crate::simd::{Kernel, Simd, dispatch};
use crate::step::StepData;

/// The work of a call in a step: `units` parts that may run in any order on any thread, and what one costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) units: usize,
    /// Estimated nanoseconds of a unit; it decides how units are grouped, never what they compute.
    pub(crate) nanoseconds: f32,
}

impl Work {
    pub(crate) fn new(units: usize, nanoseconds: f32) -> Self {
        Self { units, nanoseconds }
    }

    /// One unit a row, at `per_value` nanoseconds a value.
    pub(crate) fn rows(rows: usize, width: usize, per_value: f32) -> Self {
        Self::new(rows, 20.0 + width as f32 * per_value)
    }
}

/// An activation that a call reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) place: Place,
    pub(crate) rows: RowKind,
}

/// Buffers of one thread that calls may use freely.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) floats: Vec<f32>,
    pub(crate) attention: crate::kernels::attention::Buffers,
    pub(crate) quantized: quant_mat_mul::Scratch,
}

/// What calls work on. Made by [`Context::new`], whose contract makes its views safe.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) isa: Isa,
    pub(crate) step: &'a StepData,
    pub(crate) caches: &'a [CacheMemory],
    pub(crate) quantized: &'a [QuantRows],
    arena: &'a Memory,
}

/// The parts of a program that a [`Context`] shows.
pub(crate) struct Parts<'a> {
    pub(crate) arena: &'a Memory,
    pub(crate) caches: &'a [CacheMemory],
    pub(crate) quantized: &'a [QuantRows],
}

impl<'a> Context<'a> {
    /// # Safety
    /// Calls that run at the same time touch no value that another of them writes: they come from one wave of a plan
    /// whose hazards have been checked, or are different units of one call. Calls of other waves are separated by a
    /// barrier. The step has passed its check against the program's limits.
    #[expect(unsafe_code, reason = "the contract under which calls share memory")]
    pub(crate) unsafe fn new(parts: Parts<'a>, step: &'a StepData, isa: Isa) -> Self {
        let Parts { arena, caches, quantized } = parts;
        Self { isa, step, caches, quantized, arena }
    }

    /// A view of an activation.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub(crate) fn view(&self, place: Place) -> Rows<'a> {
        // SAFETY: `Context::new` was promised the discipline of waves.
        unsafe { Rows::new(self.arena, place) }
    }

    /// Rows of an operand in this step.
    pub(crate) fn count(&self, operand: Operand) -> usize {
        self.step.count(operand.rows)
    }

    /// u32 values outside the plan's activations, which a call of an earlier stage has written.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub(crate) fn words(&self, at: usize, len: usize) -> &'a [u32] {
        // SAFETY: `Context::new` was promised the discipline of waves.
        unsafe { self.arena.slice(at, len) }
    }

    /// u32 values outside the plan's activations, for the one call that writes them.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub(crate) fn words_mut(&self, at: usize, len: usize) -> &'a mut [u32] {
        // SAFETY: `Context::new` was promised the discipline of waves.
        unsafe { self.arena.slice_mut(at, len) }
    }
}

/// A prepared operation.
pub(crate) trait Call: Send + Sync {
    /// Its work in a step.
    fn work(&self, step: &StepData) -> Work;

    /// Runs some of its units.
    fn run(&self, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch);

    /// Asks for the weights that some of its units read first, before what they work on is there.
    fn ahead(&self, _step: &StepData, _units: Range<usize>) {}
}

/// A call whose code is compiled for every instruction set.
pub(crate) trait VectorCall: Send + Sync {
    /// See [`Call::work`].
    fn work(&self, step: &StepData) -> Work;

    /// See [`Call::run`]; implementations are `#[inline(always)]`.
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch);

    /// See [`Call::ahead`].
    fn ahead(&self, _step: &StepData, _units: Range<usize>) {}
}

/// A call with the part of it to run.
struct Part<'a, C> {
    call: &'a C,
    cx: &'a Context<'a>,
    units: Range<usize>,
    scratch: &'a mut Scratch,
}

impl<C: VectorCall> Kernel for Part<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.call.run(s, self.cx, self.units, self.scratch);
    }
}

impl<C: VectorCall> Call for C {
    fn work(&self, step: &StepData) -> Work {
        VectorCall::work(self, step)
    }

    fn run(&self, cx: &Context<'_>, units: Range<usize>, scratch: &mut Scratch) {
        dispatch(cx.isa, Part { call: self, cx, units, scratch });
    }

    fn ahead(&self, step: &StepData, units: Range<usize>) {
        VectorCall::ahead(self, step, units);
    }
}
