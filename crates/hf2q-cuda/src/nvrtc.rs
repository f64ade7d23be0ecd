//! NVRTC, the compiler of kernels, loaded when it is needed.

use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use libloading::Library;

use crate::error::CudaError;

type Program = *mut c_void;

/// The functions that are used.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

/// The loaded library.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    file: PathBuf,
    /// What the functions belong to.
    _libraries: Vec<Library>,
}

/// What is to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// For messages.
    pub name: &'a str,
    /// The source.
    pub source: &'a str,
    /// Files that it may include: name and text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Options, the architecture (`--gpu-architecture=sm_…`) among them.
    pub options: &'a [String],
    /// The architecture, for messages.
    pub arch: &'a str,
}

/// Compiled code and what the compiler said.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Code for one architecture.
    pub cubin: Vec<u8>,
    /// Warnings, and with `--ptxas-options=-v` what registers and memory are used.
    pub log: String,
}

/// Names by which the system's loader may know the library, newest first.
const NAMES: [&str; 5] = [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so",
    "/usr/local/cuda/lib64/libnvrtc.so",
    "nvrtc64_130_0.dll",
];

#[expect(unsafe_code, reason = "functions of a library written in C")]
impl Nvrtc {
    /// Loads `file`, or what the system finds, or what is in one of the folders.
    ///
    /// # Errors
    /// What the loader said, if there is none.
    pub fn find(file: Option<&Path>, folders: &[PathBuf]) -> Result<Self, String> {
        if let Some(file) = file {
            return Self::load(file);
        }
        let mut first = None;
        for name in NAMES {
            match Self::load(Path::new(name)) {
                Ok(found) => return Ok(found),
                Err(why) => first = first.or(Some(why)),
            }
        }
        let in_folders = folders.iter().flat_map(|folder| entries(folder, "libnvrtc.so"));
        let mut whys = Vec::new();
        for file in in_folders {
            match Self::load(&file) {
                Ok(found) => return Ok(found),
                Err(why) => whys.push(why),
            }
        }
        Err(whys.into_iter().next().or(first).unwrap_or_default())
    }

    /// Loads a file.
    ///
    /// # Errors
    /// What the loader said.
    pub fn load(file: &Path) -> Result<Self, String> {
        // Its second library is looked for by name only, so it must be there before.
        let beside = file.parent().map(|folder| entries(folder, "libnvrtc-builtins.so")).unwrap_or_default();
        // SAFETY: what lies beside NVRTC under this name is its own second library, which is as trusted as NVRTC itself.
        let libraries = beside.iter().filter_map(|file| unsafe { Library::new(file) }.ok());
        Self::open(file, libraries.collect())
    }

    fn open(file: &Path, mut libraries: Vec<Library>) -> Result<Self, String> {
        // SAFETY: as above, for the library that the system knows by this name.
        let library = unsafe { Library::new(file) }.map_err(|e| why(file, &e))?;
        macro_rules! get {
            ($name:literal) => {
                // SAFETY: the field has the type that NVRTC's header gives this function.
                *unsafe { library.get($name) }.map_err(|e| why(file, &e))?
            };
        }
        let functions = Functions {
            version: get!(b"nvrtcVersion\0"),
            create: get!(b"nvrtcCreateProgram\0"),
            compile: get!(b"nvrtcCompileProgram\0"),
            destroy: get!(b"nvrtcDestroyProgram\0"),
            log_size: get!(b"nvrtcGetProgramLogSize\0"),
            log: get!(b"nvrtcGetProgramLog\0"),
            cubin_size: get!(b"nvrtcGetCUBINSize\0"),
            cubin: get!(b"nvrtcGetCUBIN\0"),
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to integers.
        let code = unsafe { (functions.version)(&mut major, &mut minor) };
        check("nvrtcVersion", code).map_err(|e| e.to_string())?;
        libraries.push(library);
        let file = file.to_owned();
        Ok(Self { functions, version: (major, minor), file, _libraries: libraries })
    }

    /// For example `(13, 0)`.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The file, or the name by which the system knows it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Compiles to machine code.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile(&self, unit: &Unit<'_>) -> Result<Compiled, CudaError> {
        let strings = |texts: &mut dyn Iterator<Item = &str>| -> Vec<CString> {
            texts.map(|t| CString::new(t).expect("sources and options have no zero bytes")).collect()
        };
        let pointers = |s: &[CString]| s.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let names = strings(&mut [unit.source, unit.name].into_iter());
        let texts = strings(&mut unit.headers.iter().map(|h| h.1));
        let includes = strings(&mut unit.headers.iter().map(|h| h.0));
        let options = strings(&mut unit.options.iter().map(String::as_str));
        let (texts, includes, options) = (pointers(&texts), pointers(&includes), pointers(&options));
        let count = |n: usize| c_int::try_from(n).expect("a handful of headers and options");
        let mut program: Program = null_mut();
        // SAFETY: all pointers are to strings and lists that live until the end of this function.
        let code = unsafe {
            (self.functions.create)(
                &mut program,
                names[0].as_ptr(),
                names[1].as_ptr(),
                count(texts.len()),
                texts.as_ptr(),
                includes.as_ptr(),
            )
        };
        check("nvrtcCreateProgram", code)?;
        // SAFETY: the program was made above.
        let code = unsafe { (self.functions.compile)(program, count(options.len()), options.as_ptr()) };
        let result = self.result(program, code, unit);
        // SAFETY: the program was made above and is not used again.
        unsafe { (self.functions.destroy)(&mut program) };
        result
    }

    fn result(&self, program: Program, code: c_int, unit: &Unit<'_>) -> Result<Compiled, CudaError> {
        let mut size = 0;
        // SAFETY: the program is alive; `size` is an integer.
        check("nvrtcGetProgramLogSize", unsafe { (self.functions.log_size)(program, &mut size) })?;
        let mut log = vec![0_u8; size];
        // SAFETY: the log has room for `size` bytes.
        check("nvrtcGetProgramLog", unsafe { (self.functions.log)(program, log.as_mut_ptr().cast()) })?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        if code != 0 {
            let (kernel, arch) = (unit.name.to_owned(), unit.arch.to_owned());
            return Err(CudaError::Compile { kernel, arch, log });
        }
        // SAFETY: the program is alive and compiled.
        check("nvrtcGetCUBINSize", unsafe { (self.functions.cubin_size)(program, &mut size) })?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: there is room for `size` bytes.
        check("nvrtcGetCUBIN", unsafe { (self.functions.cubin)(program, cubin.as_mut_ptr().cast()) })?;
        Ok(Compiled { cubin, log })
    }
}

/// Files of a folder whose names begin so, the newest version first.
fn entries(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_named = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with(name);
    let mut files: Vec<PathBuf> = entries.filter(is_named).map(|e| e.path()).collect();
    files.sort_by(|a, b| b.cmp(a));
    files
}

/// What the loader said of a file: its error itself names only the call.
fn why(file: &Path, error: &libloading::Error) -> String {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let name = file.to_string_lossy();
    if why.contains(&*name) { why } else { format!("{name}: {why}") }
}

fn check(call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Nvrtc { call, code }) }
}
