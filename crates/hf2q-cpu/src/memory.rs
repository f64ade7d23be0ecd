//! Memory that the threads of a program share without locks.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hf2q_plan::BackendError;
use memmap2::MmapMut;

/// Values for which every bit pattern is valid.
pub(crate) trait Plain: Copy {}

impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u8 {}

/// Zeroed bytes, aligned to pages of the system, that several threads read and write. Which thread touches what, and when,
/// is for the users to agree on: see [`Memory::slice`] and [`Memory::slice_mut`]. They take room from the first touch on.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// Owns the bytes.
    _map: MmapMut,
    _promise: Promise,
}

/// Bytes of all memories.
static PROMISED: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the open programs of this process hold for caches and activations. The system counts each page of them from its
/// first touch on, so that what it calls free may be promised already.
#[must_use]
pub fn promised() -> usize {
    PROMISED.load(Relaxed)
}

/// Bytes that count as promised as long as it lives.
#[derive(Debug)]
struct Promise {
    counter: &'static AtomicUsize,
    bytes: usize,
}

impl Promise {
    fn new(counter: &'static AtomicUsize, bytes: usize) -> Self {
        counter.fetch_add(bytes, Relaxed);
        Self { counter, bytes }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Relaxed);
    }
}

// SAFETY: the bytes belong to no thread, and access goes through unsafe methods whose callers exclude races.
#[expect(unsafe_code, reason = "shared memory")]
unsafe impl Send for Memory {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "shared memory")]
unsafe impl Sync for Memory {}

#[expect(unsafe_code, reason = "shared memory")]
impl Memory {
    /// Allocates; `what` is for the message of the error.
    pub(crate) fn new(what: &str, bytes: usize) -> Result<Self, BackendError> {
        let fail = || BackendError::OutOfMemory { what: what.to_owned(), bytes };
        let mut map = MmapMut::map_anon(bytes.max(1)).map_err(|_| fail())?;
        ask_for_huge_pages(&map);
        let start = NonNull::new(map.as_mut_ptr()).ok_or_else(fail)?;
        let bytes = map.len();
        Ok(Self { start, bytes, _map: map, _promise: Promise::new(&PROMISED, bytes) })
    }

    /// Number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks bounds and alignment and returns the first of `len` values `at` bytes from the start.
    pub(crate) fn pointer<T: Plain>(&self, at: usize, len: usize) -> *mut T {
        let end = len.checked_mul(size_of::<T>()).and_then(|n| n.checked_add(at));
        assert!(end.is_some_and(|end| end <= self.bytes), "{len} values at {at} leave the memory");
        assert!(at.is_multiple_of(align_of::<T>()), "values at {at} are not aligned");
        // SAFETY: `at` lies within the allocation.
        unsafe { self.start.as_ptr().add(at).cast() }
    }

    /// # Safety
    /// Nobody writes to these bytes while the slice is alive.
    pub(crate) unsafe fn slice<T: Plain>(&self, at: usize, len: usize) -> &[T] {
        // SAFETY: the pointer is checked, the bytes are initialised, and the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.pointer(at, len), len) }
    }

    /// # Safety
    /// Nobody else reads or writes these bytes while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "the caller hands out disjoint parts")]
    pub(crate) unsafe fn slice_mut<T: Plain>(&self, at: usize, len: usize) -> &mut [T] {
        // SAFETY: the pointer is checked, the bytes are initialised, and the caller excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(at, len), len) }
    }
}

/// What lies before in a larger allocation stays in small pages: a short context takes little more memory than it fills.
#[cfg(target_os = "linux")]
const HUGE_FROM: usize = 2 << 20;

/// Asks for huge pages: blocks of a long context lie far apart, and each small page would have to be looked up.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(map: &MmapMut) {
    if let Some(len) = map.len().checked_sub(HUGE_FROM).filter(|&len| len > 0) {
        // A system without them goes on with small ones.
        let _ = map.advise_range(memmap2::Advice::NoHugePage, 0, HUGE_FROM);
        let _ = map.advise_range(memmap2::Advice::HugePage, HUGE_FROM, len);
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: &MmapMut) {}

/// Where the rows of a view lie in a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Bytes from the start of the memory to the first value of row 0.
    pub(crate) at: usize,
    /// Values from one row to the next.
    pub(crate) stride: usize,
    /// Values of a row.
    pub(crate) width: usize,
}

/// A view of the activations of a running step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    memory: &'a Memory,
    place: Place,
}

#[expect(unsafe_code, reason = "slices of shared memory, under the contract of `new`")]
impl<'a> Rows<'a> {
    /// # Safety
    /// The user follows the discipline of waves: while the view is alive, a value that some thread writes through it
    /// or another view is read or written by no other thread, and no slice of it is kept across such a write.
    pub(crate) unsafe fn new(memory: &'a Memory, place: Place) -> Self {
        Self { memory, place }
    }

    pub(crate) fn width(self) -> usize {
        self.place.width
    }

    pub(crate) fn stride(self) -> usize {
        self.place.stride
    }

    pub(crate) fn row(self, row: usize) -> &'a [f32] {
        self.columns(row, 0..self.place.width)
    }

    pub(crate) fn row_mut(self, row: usize) -> &'a mut [f32] {
        self.columns_mut(row, 0..self.place.width)
    }

    /// All values of `rows` rows that lie one after another.
    pub(crate) fn whole(self, rows: usize) -> &'a [f32] {
        assert_eq!(self.place.stride, self.place.width, "rows lie apart");
        // SAFETY: by the contract of `new` nobody writes here while it is read.
        unsafe { self.memory.slice(self.place.at, rows * self.place.width) }
    }

    pub(crate) fn columns(self, row: usize, columns: Range<usize>) -> &'a [f32] {
        // SAFETY: by the contract of `new` nobody writes here while it is read.
        unsafe { self.memory.slice(self.at(row, &columns), columns.len()) }
    }

    pub(crate) fn columns_mut(self, row: usize, columns: Range<usize>) -> &'a mut [f32] {
        // SAFETY: by the contract of `new` nobody else is here.
        unsafe { self.memory.slice_mut(self.at(row, &columns), columns.len()) }
    }

    pub(crate) fn indices(self, row: usize) -> &'a [i32] {
        // SAFETY: by the contract of `new` nobody writes here while it is read.
        unsafe { self.memory.slice(self.at(row, &(0..self.place.width)), self.place.width) }
    }

    pub(crate) fn indices_mut(self, row: usize) -> &'a mut [i32] {
        // SAFETY: by the contract of `new` nobody else is here.
        unsafe { self.memory.slice_mut(self.at(row, &(0..self.place.width)), self.place.width) }
    }

    /// The first value of row 0, after checking that `rows` rows lie within the memory.
    pub(crate) fn base(self, rows: usize) -> *mut f32 {
        let len = rows.saturating_sub(1) * self.place.stride + self.place.width;
        self.memory.pointer(self.place.at, len)
    }

    fn at(self, row: usize, columns: &Range<usize>) -> usize {
        assert!(columns.start <= columns.end && columns.end <= self.place.width, "columns leave the view");
        self.place.at + (row * self.place.stride + columns.start) * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_promised_as_long_as_it_lives() {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let (one, two) = (Promise::new(&COUNTER, 5), Promise::new(&COUNTER, 7));
        assert_eq!(COUNTER.load(Relaxed), 12);
        drop(one);
        assert_eq!(COUNTER.load(Relaxed), 7);
        drop(two);
        assert_eq!(COUNTER.load(Relaxed), 0);
        // Other tests only add to it while this one lives.
        let bytes = 64 << 20;
        let memory = Memory::new("a test", bytes).unwrap();
        assert!(promised() >= bytes && memory.bytes() == bytes);
    }
}
