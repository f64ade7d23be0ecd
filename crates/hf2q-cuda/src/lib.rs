//! Stage 7: runs plans on an NVIDIA GPU.
//!
//! In: a [`hf2q_plan::Plan`], the bytes of its weights and steps. Out: logits. Nothing of CUDA is needed to build; the
//! driver is looked for when a backend is made, and kernels are compiled by NVRTC for the device at hand (or taken
//! from a folder of compiled ones).
//!
//! A row's result depends on that row's history alone, bit for bit: every kernel accumulates in an order that the
//! shapes of weights and heads fix, not the number of rows or the grid.

mod backend;
mod compile;
mod device;
mod error;
mod fuse;
mod graph;
mod kept;
mod launch;
mod library;
mod lower;
mod measure;
mod memory;
pub mod nvrtc;
mod order;
mod program;
mod shelf;
pub mod sources;
mod step;
mod timing;

pub use backend::{CudaBackend, CudaOptions, Loading, OnLoading};
pub use device::{DeviceInfo, Devices};
pub use error::CudaError;
pub use kept::{EMBEDDED_FILE, bundle, embedded_kernels, keep};
pub use library::compile as compile_variant;
