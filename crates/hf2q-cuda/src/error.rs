//! What can go wrong between a plan and a device.

use std::path::PathBuf;

use hf2q_plan::BackendError;

use crate::backend::NAME;

/// Why CUDA could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not there.
    #[error("no NVIDIA driver was found (libcuda); install one, or run on the CPU")]
    NoDriver,
    /// There is no such device.
    #[error("device {found} asked for, there are {count}, numbered from 0; `hf2q doctor` lists them")]
    NoDevice {
        /// Number asked for.
        found: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver or the device is older than what kernels are written for.
    #[error("{what} is {}.{}, needed is at least {}.{}; run on the CPU", found.0, found.1, least.0, least.1)]
    TooOld {
        /// What is too old.
        what: String,
        /// Its version.
        found: (u32, u32),
        /// The version that is needed.
        least: (u32, u32),
    },
    /// The compiler's library is not there and a kernel is not yet compiled.
    #[error(
        "kernel {kernel} is not compiled for {arch} and NVRTC was not found ({why}); install it, for example with \
         `pip install nvidia-cuda-nvrtc`, and name its file or put its folder where the system looks for libraries"
    )]
    NoCompiler {
        /// Which kernel.
        kernel: String,
        /// Architecture it is needed for.
        arch: String,
        /// What the loader said.
        why: String,
    },
    /// NVRTC refused a kernel.
    #[error("kernel {kernel} does not compile for {arch}:\n{log}")]
    Compile {
        /// Which kernel.
        kernel: String,
        /// Architecture.
        arch: String,
        /// The compiler's messages.
        log: String,
    },
    /// A call of NVRTC failed for another reason.
    #[error("NVRTC: {call} failed with code {code}")]
    Nvrtc {
        /// The function.
        call: &'static str,
        /// Its result.
        code: i32,
    },
    /// A call of the driver failed.
    #[error("the NVIDIA driver failed at {what}: {why}")]
    Driver {
        /// What was being done.
        what: String,
        /// The driver's name of the error.
        why: String,
    },
    /// Device memory, or memory that the device can read, is exhausted.
    #[error("{what} needs {bytes} bytes, which could not be allocated")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        bytes: usize,
    },
    /// A compiled kernel could not be kept.
    #[error("a compiled kernel cannot be kept as {}: {error}; name another folder, or none", path.display())]
    Cache {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

impl From<CudaError> for BackendError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::OutOfMemory { what, bytes } => Self::OutOfMemory { what, bytes },
            other => Self::Failed { backend: NAME, why: other.to_string() },
        }
    }
}
