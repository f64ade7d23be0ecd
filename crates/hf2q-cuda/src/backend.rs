//! The backend: a device and its compiled kernels.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, BackendError, Limits, Plan, Program, ProgramMemory, Roofline};

use crate::compile::{compile, count};
use crate::device::{Device, DeviceInfo, Devices, find};
use crate::error::CudaError;
use crate::launch::measure::variant;
use crate::library::{Library, Origins};
use crate::measure::measure;
use crate::program::CudaProgram;
use crate::shelf::Shelf;

/// Name in errors and reports.
pub(crate) const NAME: &str = "cuda";

/// Bytes that are left to the driver: kernels, recorded launches, memory in pieces.
const RESERVE: usize = 256 << 20;

/// How programs are run.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Number of the device, from 0.
    pub device: usize,
    /// Folder of kernels compiled beforehand by `cargo xtask kernels`.
    pub prebuilt: Option<PathBuf>,
    /// Folder in which compiled kernels are kept; `None`: they are compiled in every process.
    pub kernel_cache: Option<PathBuf>,
    /// The file of NVRTC; `None`: what the system finds.
    pub nvrtc: Option<PathBuf>,
    /// Folders in which NVRTC may be where the system finds none.
    pub nvrtc_folders: Vec<PathBuf>,
    /// Is told what takes time while plans are opened.
    pub loading: Option<OnLoading>,
}

/// What takes time while a plan is opened.
#[derive(Clone, Copy, Debug)]
pub enum Loading<'a> {
    /// A kernel is compiled, for none is kept for this device.
    Compiling {
        /// Name of the variant.
        kernel: &'a str,
    },
    /// A compiled kernel could not be kept, and will be compiled again.
    NotKept {
        /// What the system said.
        why: &'a str,
    },
    /// Weights are copied.
    Weights {
        /// Bytes that are on the device.
        done: u64,
        /// Bytes of all.
        total: u64,
    },
}

/// A function that is told what takes time.
#[derive(Clone)]
pub struct OnLoading(Arc<dyn Fn(&Loading<'_>) + Send + Sync>);

impl OnLoading {
    /// Calls `f`, from the thread that opens a plan.
    pub fn new(f: impl Fn(&Loading<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    pub(crate) fn tell(&self, what: &Loading<'_>) {
        (self.0)(what);
    }
}

impl fmt::Debug for OnLoading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLoading")
    }
}

/// Runs plans on one NVIDIA GPU.
pub struct CudaBackend {
    device: Device,
    library: Arc<Library>,
    shelf: Shelf,
    loading: Option<OnLoading>,
}

impl CudaBackend {
    /// Looks for the driver and its devices. Nothing is opened.
    pub fn devices() -> Devices {
        find()
    }

    /// Opens a device.
    ///
    /// # Errors
    /// If there is no driver or no such device, or one of them is too old.
    pub fn new(options: CudaOptions) -> Result<Self, CudaError> {
        let device = Device::open(options.device)?;
        let CudaOptions { prebuilt, kernel_cache: cache, nvrtc, nvrtc_folders, loading, .. } = options;
        let origins = Origins { prebuilt, cache, nvrtc, nvrtc_folders, loading: loading.clone() };
        Ok(Self { device, library: Arc::new(Library::new(origins)), shelf: Shelf::default(), loading })
    }

    /// What is known of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// Loads a small kernel, and compiles it if need be: where that works, others do.
    ///
    /// # Errors
    /// If no compiled kernels are there and NVRTC is not found, or the device does not take what it makes.
    pub fn check_kernels(&self) -> Result<(), CudaError> {
        self.library.function(&self.device, &variant(), ("spin", 0)).map(|_| ())
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        let info = &self.device.info;
        let gib = info.memory as f64 / f64::from(1 << 30);
        format!("{NAME}:{}: {}, {}, {gib:.0} GiB", info.ordinal, info.name, info.arch())
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let on = (self.device.fork()?, &*self.library, &self.shelf, self.loading.as_ref());
        let compiled = compile(&plan, weights, limits, on)?;
        Ok(Box::new(CudaProgram::new(plan, compiled, limits)?))
    }

    fn memory(
        &self,
        plan: &Plan,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<ProgramMemory, BackendError> {
        count(plan, weights, limits, (self.device.fork()?, &self.library, &self.shelf))
    }

    fn held(&self, weights: &[Bytes]) -> u64 {
        self.shelf.held(weights) as u64
    }

    fn free_memory(&self) -> Result<Option<u64>, BackendError> {
        Ok(Some(self.device.free()?.saturating_sub(RESERVE) as u64))
    }

    fn roofline(&self, bytes: usize) -> Result<Roofline, BackendError> {
        Ok(measure(&self.device.fork()?, &self.library, bytes)?)
    }
}
