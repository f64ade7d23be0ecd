//! Kernels that measure the device.

use super::{Arguments, Cx, Grid, launch};
use crate::device::Device;
use crate::error::CudaError;
use crate::library::{Function, Library};
use crate::sources::Variant;

/// Threads of a block of the measuring kernels.
pub(crate) const THREADS: usize = 256;

pub(crate) fn variant() -> Variant {
    Variant::plain("measure")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// `struct Measure` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    from: u64,
    out: u64,
    count: u64,
}

// SAFETY: the fields are those of the kernel's structure; `Measuring::new` takes memory of the sizes that kernels read.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Pieces of 16 bytes that are read.
    Read,
    /// Rounds of 8 multiply-adds a thread.
    MultiplyAdd,
    /// Rounds of 8 products of tiles a warp.
    Dot,
    /// Nanoseconds to wait, in one thread.
    Spin,
}

impl What {
    fn entry(self) -> &'static str {
        match self {
            Self::Read => "read_all",
            Self::MultiplyAdd => "multiply_add",
            Self::Dot => "dot",
            Self::Spin => "spin",
        }
    }
}

/// A kernel that measures.
#[derive(Clone, Copy)]
pub(crate) struct Measuring {
    function: Function,
    what: What,
    args: Args,
    blocks: usize,
}

impl Measuring {
    /// `from` is memory of `count` pieces for [`What::Read`]; `out` has more words than a block has threads.
    pub(crate) fn new(
        device: &Device,
        library: &Library,
        what: What,
        (from, out, count): (u64, u64, u64),
    ) -> Result<Self, CudaError> {
        let function = library.function(device, &variant(), (what.entry(), 0))?;
        let blocks = if what == What::Spin { 1 } else { 8 * device.info.multiprocessors as usize };
        Ok(Self { function, what, args: Args { from, out, count }, blocks })
    }

    /// Bytes or operations of a launch.
    pub(crate) fn amount(&self) -> f64 {
        let (count, threads) = (self.args.count as f64, (self.blocks * THREADS) as f64);
        match self.what {
            What::Read => count * 16.0,
            What::MultiplyAdd => count * threads * 16.0,
            What::Dot => count * threads / 32.0 * 8.0 * 8192.0,
            What::Spin => 0.0,
        }
    }

    /// The same for another count.
    pub(crate) fn with_count(self, count: u64) -> Self {
        Self { args: Args { count, ..self.args }, ..self }
    }

    /// Queues a launch.
    pub(crate) fn queue(&self, device: &Device) -> Result<(), CudaError> {
        let cx = Cx { device, step: self.args.out, rows: 0, logit_rows: 0 };
        let threads = if self.what == What::Spin { 1 } else { THREADS };
        launch(&cx, self.function, Grid::new([self.blocks, 1, 1], threads), &self.args)
    }
}
