//! Memory of which several threads write different parts through a shared reference.

#![expect(unsafe_code, reason = "threads write different parts of the same memory")]

use std::cell::UnsafeCell;
use std::ops::Range;

/// A vector of numbers that may be written through a shared reference.
#[derive(Debug, Default)]
pub(super) struct Cells<T>(Vec<UnsafeCell<T>>);

// SAFETY: writes through a shared reference go through `shared_mut` and `pointer`, whose callers keep other threads out.
unsafe impl<T: Send + Sync> Sync for Cells<T> {}

impl<T: Copy + Default> Cells<T> {
    /// Changes the length, keeping the capacity; new elements are zero.
    pub(super) fn resize(&mut self, len: usize) {
        self.0.resize_with(len, UnsafeCell::default);
    }

    /// Bytes that are allocated.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<T>()
    }

    /// Index of the first element that starts a cache line; at most one line from the start.
    pub(super) fn aligned(&self) -> usize {
        self.0.as_ptr().align_offset(64).min(64 / size_of::<T>())
    }

    /// The first element of a part. Who writes through it keeps readers and other writers out.
    pub(super) fn pointer(&self, range: Range<usize>) -> *mut T {
        UnsafeCell::raw_get(self.0[range].as_ptr())
    }

    /// A part to be read.
    pub(super) fn get(&self, range: Range<usize>) -> &[T] {
        let cells = &self.0[range];
        // SAFETY: a cell has the layout of its value, and who writes by `shared_mut` or `pointer` keeps readers out.
        unsafe { std::slice::from_raw_parts(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }

    /// All elements, to be written.
    pub(super) fn get_mut(&mut self) -> &mut [T] {
        let len = self.0.len();
        // SAFETY: a cell has the layout of its value, and `self` is borrowed for as long as the result.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }

    /// A part to be written while others write other parts.
    ///
    /// # Safety
    ///
    /// While the result is alive nobody else reads or writes this part.
    #[expect(clippy::mut_from_ref, reason = "the caller has the part alone")]
    pub(super) unsafe fn shared_mut(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.0[range];
        // SAFETY: the memory is that of cells, which may change behind a shared reference; the caller has it alone.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}
