//! A view of neighbouring weight rows in the layout of the file.

/// At least [`super::PANEL`] rows of `stride` bytes, one after another.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Panel<'a> {
    /// Rows of `stride` bytes.
    pub(super) fn new(bytes: &'a [u8], stride: usize) -> Self {
        Self { bytes, stride }
    }

    /// Bytes from one row to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The bytes from row 0 on, after checking that `at .. at + 16` lies inside each of `rows` rows.
    #[inline(always)]
    pub(super) fn checked(&self, rows: usize, at: usize) -> &'a [u8] {
        assert!(at + 16 <= self.stride && rows * self.stride <= self.bytes.len(), "a read leaves the panel");
        self.bytes
    }
}
