//! Kernels of a device: part of the program, from a folder, or from NVRTC.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::{result, sys};

use crate::backend::{Loading, OnLoading};
use crate::device::{Device, driver_error};
use crate::error::CudaError;
use crate::kept;
use crate::nvrtc::{Nvrtc, Unit};
use crate::sources::{HEADERS, Variant};

/// Where compiled kernels come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// Kernels compiled beforehand by `cargo xtask kernels`.
    pub(crate) prebuilt: Option<PathBuf>,
    /// Where those compiled here are kept.
    pub(crate) cache: Option<PathBuf>,
    /// The file of NVRTC; `None`: what the system finds.
    pub(crate) nvrtc: Option<PathBuf>,
    /// Folders in which it may be where the system finds none.
    pub(crate) nvrtc_folders: Vec<PathBuf>,
    /// Is told what is compiled.
    pub(crate) loading: Option<OnLoading>,
}

/// Loaded kernels of one device.
pub(crate) struct Library {
    origins: Origins,
    nvrtc: OnceLock<Result<Nvrtc, String>>,
    modules: Mutex<HashMap<Variant, Module>>,
}

/// A loaded variant. It is not unloaded: the driver does so with the context.
#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: the handle is only passed to the driver.
#[expect(unsafe_code, reason = "handles of the driver")]
unsafe impl Send for Module {}

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
    pub(crate) fn new(origins: Origins) -> Self {
        Self { origins, nvrtc: OnceLock::new(), modules: Mutex::default() }
    }

    /// The entry of a variant, which may use `shared` bytes of shared memory chosen at launch.
    #[expect(unsafe_code, reason = "the driver is a library written in C")]
    pub(crate) fn function(
        &self,
        device: &Device,
        variant: &Variant,
        (entry, shared): (&str, u32),
    ) -> Result<Function, CudaError> {
        // Held to the end, so that of two programs neither lowers what the other has raised.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = self.module(device, variant, &mut modules)?;
        let what = format!("loading kernel {entry} of {}", variant.name());
        let fail = |e| driver_error(&what, e);
        let name = CString::new(entry).expect("names of kernels have no zero bytes");
        // SAFETY: the module is loaded and never unloaded.
        let function = unsafe { result::module::get_function(module.0, name) }.map_err(fail)?;
        if shared > 48 * 1024 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found above.
            let most = unsafe { result::function::get_function_attribute(function, attribute) };
            let wanted = shared.cast_signed().max(most.map_err(fail)?);
            // SAFETY: as above.
            unsafe { result::function::set_function_attribute(function, attribute, wanted) }.map_err(fail)?;
        }
        Ok(Function(function))
    }

    fn module(
        &self,
        device: &Device,
        variant: &Variant,
        modules: &mut HashMap<Variant, Module>,
    ) -> Result<Module, CudaError> {
        if let Some(module) = modules.get(variant) {
            return Ok(*module);
        }
        device.bind()?;
        // What the driver does not take, for it is older than the compiler of another day, is compiled again.
        let module = match self.kept(variant, device).find_map(|cubin| load(variant, &cubin).ok()) {
            Some(module) => module,
            None => load(variant, &self.compiled(variant, &device.info.arch())?)?,
        };
        modules.insert(variant.clone(), module);
        Ok(module)
    }

    /// Cubins that were compiled before.
    fn kept<'a>(&'a self, variant: &'a Variant, device: &'a Device) -> impl Iterator<Item = Vec<u8>> + 'a {
        let embedded = kept::embedded(variant, &device.info.arches()).map(<[u8]>::to_vec);
        let folders = [&self.origins.prebuilt, &self.origins.cache].into_iter().flatten();
        let files = folders.filter_map(|folder| kept::read(&folder.join(variant.key(&device.info.arch()))));
        embedded.into_iter().chain(files)
    }

    fn compiled(&self, variant: &Variant, arch: &str) -> Result<Vec<u8>, CudaError> {
        let Origins { nvrtc: file, nvrtc_folders: folders, cache, loading, .. } = &self.origins;
        let nvrtc = self.nvrtc.get_or_init(|| Nvrtc::find(file.as_deref(), folders));
        let nvrtc = nvrtc.as_ref().map_err(|why| CudaError::NoCompiler {
            kernel: variant.name(),
            arch: arch.to_owned(),
            why: why.clone(),
        })?;
        if let Some(loading) = loading {
            loading.tell(&Loading::Compiling { kernel: &variant.name() });
        }
        let compiled = compile(nvrtc, variant, arch, &[])?;
        if let Some(folder) = cache
            && let Err(error) = kept::keep(&folder.join(variant.key(arch)), &compiled.cubin)
            && let Some(loading) = loading
        {
            loading.tell(&Loading::NotKept { why: &error.to_string() });
        }
        Ok(compiled.cubin)
    }
}

#[expect(unsafe_code, reason = "the driver is a library written in C")]
fn load(variant: &Variant, cubin: &[u8]) -> Result<Module, CudaError> {
    // SAFETY: a whole cubin: made by the compiler, a part of this program, or as its checksum says.
    let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
    Ok(Module(module.map_err(|e| driver_error(&format!("loading kernel {}", variant.name()), e))?))
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
