//! Compiled kernels: from a folder, or from NVRTC.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
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

    #[expect(unsafe_code, reason = "the driver is a library written in C")]
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
        let cubin = self.cubin(variant, &device.info.arch())?;
        // SAFETY: a cubin whose parts all lie within it: made by the compiler, or read by `read_whole`.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
        let module = module.map_err(|e| driver_error(&format!("loading kernel {}", variant.name()), e))?;
        let module = Module(module);
        modules.insert(variant.clone(), module);
        Ok(module)
    }

    fn cubin(&self, variant: &Variant, arch: &str) -> Result<Vec<u8>, CudaError> {
        let prebuilt = self.folders.prebuilt.as_ref();
        if let Some(found) = prebuilt.and_then(|folder| read_whole(&folder.join(variant.key(arch, "")))) {
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
        if let Some(found) = kept.as_deref().and_then(read_whole) {
            return Ok(found);
        }
        let compiled = compile(nvrtc, variant, arch, &[])?;
        if let Some(path) = kept {
            keep(&path, &compiled.cubin)?;
        }
        Ok(compiled.cubin)
    }
}

/// The cubin of a file; `None`: there is none, or not all of it.
fn read_whole(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok().filter(|cubin| is_whole(cubin))
}

/// Whether bytes are an ELF file of 64 bits whose tables and sections lie within it: the driver is not told its length.
fn is_whole(elf: &[u8]) -> bool {
    elf.starts_with(b"\x7fELF\x02\x01") && parts_lie_within(elf) == Some(true)
}

/// `None`: the header or a table ends early.
fn parts_lie_within(elf: &[u8]) -> Option<bool> {
    const NO_BITS: usize = 8;
    let bytes = |at: usize, len: usize| elf.get(at..at.checked_add(len)?);
    let number = |at: usize, len: usize| {
        usize::try_from(bytes(at, len)?.iter().rev().fold(0_u64, |n, &b| n << 8 | u64::from(b))).ok()
    };
    // Where the tables of segments and of sections begin, bytes of an entry, entries.
    let [segments, sections] = [(32, 54), (40, 58)];
    bytes(number(segments.0, 8)?, number(segments.1, 2)?.checked_mul(number(segments.1 + 2, 2)?)?)?;
    let (table, each, count) = (number(sections.0, 8)?, number(sections.1, 2)?, number(sections.1 + 2, 2)?);
    let table = bytes(table, each.checked_mul(count)?).map(|_| table)?;
    if each < 64 {
        return Some(false);
    }
    for at in (0..count).map(|i| table + i * each) {
        let (kind, from, len) = (number(at + 4, 4)?, number(at + 24, 8)?, number(at + 32, 8)?);
        if kind != NO_BITS {
            bytes(from, len)?;
        }
    }
    Some(count > 0)
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
    static DRAFTS: AtomicUsize = AtomicUsize::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("{}-{number}.part", std::process::id()));
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).map_err(|error| {
        let _ = fs::remove_file(&draft);
        fail(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, 16 bytes of a section, and a table of one section.
    fn elf() -> Vec<u8> {
        let mut elf = vec![0; 64 + 16 + 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[40], elf[58], elf[60]) = (80, 64, 1);
        (elf[80 + 4], elf[80 + 24], elf[80 + 32]) = (1, 64, 16);
        elf
    }

    #[test]
    fn a_file_that_ends_early_is_not_given_to_the_driver() {
        let whole = elf();
        assert!(is_whole(&whole));
        assert!((0..whole.len()).all(|len| !is_whole(&whole[..len])), "no part of it is whole");
        let mut long = elf();
        long[80 + 32] = 81;
        assert!(!is_whole(&long), "a section leaves the file");
        let mut far = elf();
        far[40..48].fill(0xff);
        assert!(!is_whole(&far), "the table leaves the file");
    }

    #[test]
    fn kept_files_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("a.sm_90a.cubin");
        keep(&path, b"not a kernel").unwrap();
        assert_eq!(read_whole(&path), None);
        keep(&path, &elf()).unwrap();
        assert_eq!(read_whole(&path), Some(elf()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }
}
