//! Compiled kernels: from a folder, or from NVRTC.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::{result, sys};

use crate::device::{Device, driver_error};
use crate::error::CudaError;
use crate::nvrtc::{Nvrtc, Unit};
use crate::sources::{HEADERS, Variant};

/// Where compiled kernels come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folders {
    /// Kernels compiled beforehand by `cargo xtask kernels`.
    pub(crate) prebuilt: Option<PathBuf>,
    /// Where those compiled here are kept.
    pub(crate) cache: Option<PathBuf>,
    /// The file of NVRTC; `None`: what the system finds.
    pub(crate) nvrtc: Option<PathBuf>,
}

/// Loaded kernels of one device.
pub(crate) struct Library {
    folders: Folders,
    nvrtc: OnceLock<Result<Nvrtc, String>>,
    modules: Mutex<HashMap<Variant, Module>>,
}

// SAFETY: functions of NVRTC may be called by any thread, and module handles are only passed to the driver.
#[expect(unsafe_code, reason = "handles of C libraries")]
unsafe impl Send for Library {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "handles of C libraries")]
unsafe impl Sync for Library {}

/// A loaded variant. It is not unloaded: the driver does so with the context.
#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(crate) sys::CUfunction);

// SAFETY: the handle is only passed to the driver.
#[expect(unsafe_code, reason = "handles of the driver")]
unsafe impl Send for Function {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "handles of the driver")]
unsafe impl Sync for Function {}

impl Library {
    pub(crate) fn new(folders: Folders) -> Self {
        Self { folders, nvrtc: OnceLock::new(), modules: Mutex::default() }
    }

    /// The entry of a variant, which may use `shared` bytes of shared memory chosen at launch.
    #[expect(unsafe_code, reason = "the driver is a library written in C")]
    pub(crate) fn function(
        &self,
        device: &Device,
        variant: &Variant,
        (entry, shared): (&str, u32),
    ) -> Result<Function, CudaError> {
        let module = self.module(device, variant)?;
        let what = format!("loading kernel {entry} of {}", variant.name());
        let fail = |e| driver_error(&what, e);
        let name = CString::new(entry).expect("names of kernels have no zero bytes");
        // SAFETY: the module is loaded and never unloaded.
        let function = unsafe { result::module::get_function(module.0, name) }.map_err(fail)?;
        if shared > 48 * 1024 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found above.
            let set = unsafe {
                result::function::set_function_attribute(function, attribute, shared.cast_signed())
            };
            set.map_err(fail)?;
        }
        Ok(Function(function))
    }

    #[expect(unsafe_code, reason = "the driver is a library written in C")]
    fn module(&self, device: &Device, variant: &Variant) -> Result<Module, CudaError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(variant) {
            return Ok(*module);
        }
        device.bind()?;
        let cubin = self.cubin(variant, &device.info.arch())?;
        // SAFETY: a whole cubin, made by the compiler.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
        let module = module.map_err(|e| driver_error(&format!("loading kernel {}", variant.name()), e))?;
        let module = Module(module);
        modules.insert(variant.clone(), module);
        Ok(module)
    }

    fn cubin(&self, variant: &Variant, arch: &str) -> Result<Vec<u8>, CudaError> {
        let prebuilt = self.folders.prebuilt.as_ref();
        if let Some(found) = prebuilt.and_then(|folder| fs::read(folder.join(variant.key(arch, ""))).ok()) {
            return Ok(found);
        }
        let nvrtc = self.nvrtc.get_or_init(|| Nvrtc::load(self.folders.nvrtc.as_deref()));
        let nvrtc = nvrtc.as_ref().map_err(|why| CudaError::NoCompiler {
            kernel: variant.name(),
            arch: arch.to_owned(),
            why: why.clone(),
        })?;
        let (major, minor) = nvrtc.version();
        let key = variant.key(arch, &format!("{major}.{minor}"));
        let kept = self.folders.cache.as_ref().map(|folder| folder.join(key));
        if let Some(found) = kept.as_ref().and_then(|path| fs::read(path).ok()) {
            return Ok(found);
        }
        let compiled = compile(nvrtc, variant, arch, &[])?;
        if let Some(path) = kept {
            keep(&path, &compiled.cubin)?;
        }
        Ok(compiled.cubin)
    }
}

/// Compiles a variant, with some more options.
///
/// # Errors
/// The compiler's messages.
pub fn compile(
    nvrtc: &Nvrtc,
    variant: &Variant,
    arch: &str,
    more: &[&str],
) -> Result<crate::nvrtc::Compiled, CudaError> {
    let mut options = variant.options(arch);
    options.extend(more.iter().map(|&o| o.to_owned()));
    let name = format!("{}.cu", variant.name());
    nvrtc.compile(&Unit { name: &name, source: variant.source(), headers: HEADERS, options: &options, arch })
}

/// Writes a file that others see whole or not at all.
///
/// # Errors
/// What the system said.
pub fn keep(path: &Path, bytes: &[u8]) -> Result<(), CudaError> {
    let fail = |error| CudaError::Cache { path: path.to_owned(), error };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    let draft = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).map_err(|error| {
        let _ = fs::remove_file(&draft);
        fail(error)
    })
}
