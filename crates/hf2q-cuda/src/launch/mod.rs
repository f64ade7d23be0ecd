//! Typed launches: for each kernel one structure of arguments, as C lays it out, and one place that launches it.
//!
//! Every kernel takes the address of the step's numbers first ([`crate::step`]) and its structure of arguments second.

pub(crate) mod attention;
mod attention_mma;
pub(crate) mod elementwise;
pub(crate) mod heads;
pub(crate) mod kv;
pub(crate) mod mat_mul;
mod mat_mul_experts;
mod mat_mul_float;
pub(crate) mod mat_mul_one;
mod mat_mul_pack;
pub(crate) mod mat_mul_quantize;
pub(crate) mod measure;
pub(crate) mod norm;
pub(crate) mod route;
pub(crate) mod row_program;
mod row_straight;
pub(crate) mod rows;

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, cuLaunchKernelEx,
};
use hf2q_plan::RowKind;

use mat_mul_one::AtOneRow;

use crate::device::{Device, driver_error};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Every variant of every kernel.
pub(crate) fn variants() -> Vec<Variant> {
    [
        attention::variants(),
        elementwise::variants(),
        heads::variants(),
        kv::variants(),
        mat_mul::variants(),
        measure::variants(),
        norm::variants(),
        route::variants(),
        row_program::variants(),
        row_straight::variants(),
        rows::variants(),
    ]
    .concat()
}

/// A structure of arguments as kernels read it.
///
/// # Safety
/// The type is `#[repr(C)]`, has the fields of the kernel's structure in their order, and no padding that matters; its
/// addresses are of device memory as large as the kernel makes of it for any step that the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
pub(crate) unsafe trait Arguments: Copy + Send + Sync + 'static {}

/// What a launch knows of the step: upper bounds, so that launches of a bucket can be recorded.
#[derive(Clone, Copy)]
pub(crate) struct Cx<'a> {
    pub(crate) device: &'a Device,
    /// Address of the step's numbers.
    pub(crate) step: u64,
    /// Most rows of the steps of this bucket.
    pub(crate) rows: usize,
    /// Most rows whose logits are wanted.
    pub(crate) logit_rows: usize,
}

impl Cx<'_> {
    /// Most rows of an activation.
    pub(crate) fn count(&self, rows: RowKind) -> usize {
        match rows {
            RowKind::Step => self.rows,
            RowKind::Logits => self.logit_rows,
        }
    }
}

/// A prepared operation, or a part of one.
pub(crate) trait Call: Send {
    /// Queues its launches. The grid follows from `cx` alone; rows beyond those of the step are skipped by kernels.
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError>;

    /// What it does where there is one row.
    fn at_one_row(&self) -> AtOneRow {
        AtOneRow::Own
    }

    /// What it is called in a profile where it is no operation but prepares some.
    fn preparation(&self) -> &'static str {
        "prepare"
    }
}

/// Rows of an activation as kernels see them: `struct Rows` of `common.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Rows {
    /// Address of the first value of row 0.
    pub(crate) data: u64,
    /// Values from one row to the next.
    pub(crate) stride: u32,
    /// Values of a row.
    pub(crate) width: u32,
}

/// An operand: where its rows lie, and which rows it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) rows: Rows,
    pub(crate) kind: RowKind,
}

/// [`RowKind`] as kernels see it: `ROWS_OF_STEP`, `ROWS_OF_LOGITS`.
pub(crate) fn kind_code(kind: RowKind) -> u32 {
    match kind {
        RowKind::Step => 0,
        RowKind::Logits => 1,
    }
}

/// Most blocks in the second direction of a grid; kernels stride over the rest.
pub(crate) const MAX_Y: usize = 65535;

/// Bytes that kernels may bring near: `struct Region` of `common.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Region {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// Blocks and threads of a launch, and bytes of shared memory chosen at launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: [usize; 3],
    pub(crate) threads: [usize; 3],
    pub(crate) shared: usize,
}

impl Grid {
    /// Blocks along three directions, threads along one.
    pub(crate) fn new(blocks: [usize; 3], threads: usize) -> Self {
        Self { blocks, threads: [threads, 1, 1], shared: 0 }
    }
}

/// Queues a kernel.
pub(crate) fn launch<A: Arguments>(
    cx: &Cx<'_>,
    function: Function,
    grid: Grid,
    arguments: &A,
) -> Result<(), CudaError> {
    queue(cx, function, (grid, false), arguments)
}

/// Queues a kernel that may begin before the one queued last has ended, where the device can do that. The kernel must say
/// `wait_for_inputs` before it reads what others write, before it writes, and in every thread.
pub(crate) fn launch_ahead<A: Arguments>(
    cx: &Cx<'_>,
    function: Function,
    grid: Grid,
    arguments: &A,
) -> Result<(), CudaError> {
    queue(cx, function, (grid, cx.device.info.capability >= (9, 0)), arguments)
}

#[expect(unsafe_code, reason = "the only launch of kernels")]
fn queue<A: Arguments>(
    cx: &Cx<'_>,
    function: Function,
    (grid, ahead): (Grid, bool),
    arguments: &A,
) -> Result<(), CudaError> {
    if grid.blocks.contains(&0) {
        return Ok(());
    }
    let small = |n: usize| u32::try_from(n).expect("grids are bounded by the limits of a program");
    let [bx, by, bz] = grid.blocks.map(small);
    let [tx, ty, tz] = grid.threads.map(small);
    let mut step = cx.step;
    let mut arguments = *arguments;
    let mut parameters = [(&raw mut step).cast::<c_void>(), (&raw mut arguments).cast::<c_void>()];
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = CUlaunchConfig {
        gridDimX: bx,
        gridDimY: by,
        gridDimZ: bz,
        blockDimX: tx,
        blockDimY: ty,
        blockDimZ: tz,
        sharedMemBytes: small(grid.shared),
        hStream: cx.device.stream.cu_stream(),
        attrs: &raw mut attribute,
        numAttrs: ahead.into(),
    };
    // SAFETY: the function belongs to a loaded module; it takes an address and a structure of the type's layout, which
    // `Arguments` promises, as it does for the memory that they name. All that is pointed to outlives the call.
    let queued =
        unsafe { cuLaunchKernelEx(&config, function.0, parameters.as_mut_ptr(), std::ptr::null_mut()) };
    queued.result().map_err(|e| driver_error("launching a kernel", e))
}
