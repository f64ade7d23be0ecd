//! The backend: a device and its compiled kernels.

use std::path::PathBuf;
use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, BackendError, Limits, Plan, Program};

use crate::compile::compile;
use crate::device::{Device, Devices, find};
use crate::error::CudaError;
use crate::library::{Folders, Library};
use crate::program::CudaProgram;

/// Name in errors and reports.
pub(crate) const NAME: &str = "cuda";

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
}

/// Runs plans on one NVIDIA GPU.
pub struct CudaBackend {
    device: Device,
    library: Arc<Library>,
}

impl CudaBackend {
    /// Looks for the driver and its devices. Nothing is opened.
    pub fn devices() -> Devices {
        find()
    }

    /// Opens a device.
    ///
    /// # Errors
    /// If there is no driver or no such device.
    pub fn new(options: CudaOptions) -> Result<Self, CudaError> {
        let device = Device::open(options.device)?;
        let CudaOptions { prebuilt, kernel_cache: cache, nvrtc, .. } = options;
        Ok(Self { device, library: Arc::new(Library::new(Folders { prebuilt, cache, nvrtc })) })
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
        let compiled = compile(&plan, weights, limits, (self.device.fork()?, &self.library))?;
        Ok(Box::new(CudaProgram::new(plan, compiled, limits)?))
    }
}
