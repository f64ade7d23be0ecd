//! Memory of the device, memory of the host that the device reads directly, and copies between them.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::device::{Device, driver_error};
use crate::error::CudaError;

fn not_allocated(what: &str, bytes: usize, error: DriverError) -> CudaError {
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY | CUresult::CUDA_ERROR_INVALID_VALUE => {
            CudaError::OutOfMemory { what: what.to_owned(), bytes }
        }
        _ => driver_error(&format!("allocating {what}"), error),
    }
}

/// Bytes of the device, zeroed.
pub(crate) struct Buffer {
    at: CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
}

#[expect(unsafe_code, reason = "the driver's memory is addressed by numbers")]
impl Buffer {
    pub(crate) fn new(device: &Device, what: &str, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let len = bytes.max(1);
        // SAFETY: the size is not zero.
        let at = unsafe { result::malloc_sync(len) }.map_err(|e| not_allocated(what, bytes, e))?;
        let buffer = Self { at, bytes: len, context: Arc::clone(&device.context) };
        // SAFETY: the bytes have just been allocated.
        let zeroed = unsafe { result::memset_d8_async(at, 0, len, device.stream.cu_stream()) };
        zeroed.map_err(|e| driver_error(what, e))?;
        Ok(buffer)
    }

    /// Address on the device.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Queues a copy of the first `bytes` bytes from the host, which must stay as they are until it is done.
    pub(crate) fn upload(&self, device: &Device, from: &Pinned, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= self.bytes && bytes <= from.bytes, "a copy leaves its memory");
        // SAFETY: both sides have these bytes, and the host's live until the stream has been waited for.
        let copied = unsafe {
            let from = std::slice::from_raw_parts(from.at.cast::<u8>(), bytes);
            result::memcpy_htod_async(self.at, from, device.stream.cu_stream())
        };
        copied.map_err(|e| driver_error("copying to the device", e))
    }

    /// Queues a copy of `bytes` bytes from `at` on to the host.
    pub(crate) fn download(
        &self,
        device: &Device,
        at: u64,
        (to, bytes): (&mut Pinned, usize),
    ) -> Result<(), CudaError> {
        let end = at.checked_sub(self.at).and_then(|n| n.checked_add(bytes as u64));
        assert!(end.is_some_and(|e| e <= self.bytes as u64) && bytes <= to.bytes, "a copy leaves its memory");
        // SAFETY: both sides have these bytes, and the host's are read after the stream has been waited for.
        let copied = unsafe {
            let to = std::slice::from_raw_parts_mut(to.at.cast::<u8>(), bytes);
            result::memcpy_dtoh_async(to, at, device.stream.cu_stream())
        };
        copied.map_err(|e| driver_error("copying from the device", e))
    }

    /// Copies bytes of a file through pinned memory and waits for it: two halves, so that one is read while the other
    /// travels. Tells how many bytes are on their way.
    pub(crate) fn fill(
        &self,
        device: &Device,
        from: &[u8],
        (stage, tell): (&mut Pinned, &mut dyn FnMut(usize)),
    ) -> Result<(), CudaError> {
        assert!(from.len() <= self.bytes, "a copy leaves its memory");
        let half = stage.bytes / 2;
        for (i, chunk) in from.chunks(half).enumerate() {
            let first = i % 2 * half;
            // SAFETY: the half lies in the stage, and the copy before the last one, which read it, has been waited for.
            let part =
                unsafe { std::slice::from_raw_parts_mut(stage.at.cast::<u8>().add(first), chunk.len()) };
            copy(part, chunk);
            device.wait("copying weights to the device")?;
            // SAFETY: the bytes from `i * half` on are within this buffer; the half is not written before the next wait.
            let copied = unsafe {
                result::memcpy_htod_async(self.at + (i * half) as u64, part, device.stream.cu_stream())
            };
            copied.map_err(|e| driver_error("copying weights to the device", e))?;
            tell(i * half + chunk.len());
        }
        device.wait("copying weights to the device")
    }
}

/// Threads that read a file into memory, and bytes for which another one pays.
const READERS: usize = 8;
const READ: usize = 2 << 20;

/// Copies bytes that may have to be read from a disk, in several threads.
fn copy(to: &mut [u8], from: &[u8]) {
    let each = from.len().div_ceil(READERS).max(READ);
    let parts = to.chunks_mut(each).zip(from.chunks(each));
    if from.len() <= READ {
        parts.for_each(|(to, from)| to.copy_from_slice(from));
    } else {
        std::thread::scope(|scope| {
            parts.for_each(|(to, from)| {
                scope.spawn(|| to.copy_from_slice(from));
            });
        });
    }
}

#[expect(unsafe_code, reason = "frees what `new` allocated")]
impl Drop for Buffer {
    fn drop(&mut self) {
        // Nothing can be done about errors here; the driver frees all with the context.
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `new`; freeing waits for work that uses it.
        let _ = unsafe { result::free_sync(self.at) };
    }
}

/// Bytes of the host that the device copies directly.
pub(crate) struct Pinned {
    at: *mut c_void,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the bytes belong to no thread, and writing needs an exclusive borrow.
#[expect(unsafe_code, reason = "memory of the driver's")]
unsafe impl Send for Pinned {}

#[expect(unsafe_code, reason = "memory of the driver's")]
impl Pinned {
    pub(crate) fn new(device: &Device, what: &str, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let bytes = bytes.checked_next_multiple_of(16).unwrap_or(usize::MAX).max(16);
        // SAFETY: the size is not zero.
        let at = unsafe { result::malloc_host(bytes, 0) };
        let at = at.map_err(|e| not_allocated(what, bytes, e))?;
        // SAFETY: the bytes have just been allocated.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { at, bytes, context: Arc::clone(&device.context) })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `len` words.
    pub(crate) fn words(&mut self, len: usize) -> &mut [u32] {
        assert!(len * size_of::<u32>() <= self.bytes, "words leave the memory");
        // SAFETY: aligned by the driver, initialised, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), len) }
    }

    /// The first `len` values.
    pub(crate) fn values(&self, len: usize) -> &[f32] {
        assert!(len * size_of::<f32>() <= self.bytes, "values leave the memory");
        // SAFETY: aligned by the driver and initialised.
        unsafe { std::slice::from_raw_parts(self.at.cast(), len) }
    }
}

#[expect(unsafe_code, reason = "frees what `new` allocated")]
impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `new`.
        let _ = unsafe { result::free_host(self.at) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_copied_by_any_number_of_threads() {
        for len in [0, 1, super::READ, super::READ + 1, super::READ * 5 + 3] {
            let from: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut to = vec![0; len];
            super::copy(&mut to, &from);
            assert!(to == from, "{len} bytes");
        }
    }
}
