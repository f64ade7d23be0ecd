//! A view of neighbouring weight rows in the layout of the file.

use super::simd::Simd;

/// Bytes that memory moves at a time.
pub(super) const LINE: usize = 64;

/// At least [`super::PANEL`] rows of `stride` bytes, one after another.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Panel<'a> {
    /// Rows of `stride` bytes.
    ///
    /// # Panics
    ///
    /// If bytes of [`super::PANEL`] rows cannot be numbered with 31 bits.
    pub(super) fn new(bytes: &'a [u8], stride: usize) -> Self {
        assert!(stride <= i32::MAX as usize / super::PANEL, "rows of {stride} bytes");
        Self { bytes, stride }
    }

    /// Bytes from one row to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Asks for a part of the next panel while bytes `at .. at + step` of each row of this one are used. Panels lie one
    /// after another, while each is read row beside row, which no processor foresees.
    #[inline(always)]
    pub(super) fn ask_for_next<S: Simd>(&self, simd: S, at: usize, step: usize) {
        let next = self.bytes.as_ptr().wrapping_add(S::LANES * (self.stride + at));
        let mut line = 0;
        while line < S::LANES * step {
            simd.prefetch(next.wrapping_add(line));
            line += LINE;
        }
    }

    /// The bytes from `at` on of row 0, after checking that `len` bytes from there lie inside each of `rows` rows.
    #[inline(always)]
    pub(super) fn checked(&self, rows: usize, at: usize, len: usize) -> &'a [u8] {
        assert!(at + len <= self.stride && rows * self.stride <= self.bytes.len(), "a read leaves the panel");
        // Opaque, so that addresses of rows are formed where they are used: there are more rows than registers to keep
        // addresses in.
        std::hint::black_box(&self.bytes[at..])
    }
}
