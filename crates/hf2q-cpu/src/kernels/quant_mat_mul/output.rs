//! Where results go: columns of rows that several threads write at the same time.

#![expect(unsafe_code, reason = "threads write disjoint columns of the same rows")]

/// Rows of a matrix of which one product writes a range of columns: element `(i, c)` of the product goes to
/// `base + rows[i] · stride + c`.
#[derive(Clone, Copy, Debug)]
pub struct OutputRows<'a> {
    base: *mut f32,
    stride: usize,
    rows: &'a [u32],
}

impl<'a> OutputRows<'a> {
    /// Names the rows. An index must not occur twice.
    ///
    /// # Safety
    ///
    /// While a product runs, `base + rows[i] · stride + c` must be valid for writes for every row index and every
    /// column `c` that it is asked for, and nobody else may read or write those elements.
    pub unsafe fn new(base: *mut f32, stride: usize, rows: &'a [u32]) -> Self {
        Self { base, stride, rows }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A part of the rows.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self { rows: &self.rows[range], ..*self }
    }

    /// Writes a vector, or its first lanes, to neighbouring columns of one row.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn write_lanes(
        &self,
        (row, column): (usize, usize),
        values: std::arch::x86_64::__m512,
        width: usize,
    ) {
        let at = self.rows[row] as usize * self.stride + column;
        let mask = (1_u32 << width.min(16)).wrapping_sub(1) as u16;
        // SAFETY: the product is asked for these columns, so the contract of `new` covers them; others are masked.
        unsafe { std::arch::x86_64::_mm512_mask_storeu_ps(self.base.wrapping_add(at), mask, values) }
    }

    /// Writes neighbouring columns of one row, given as bit patterns.
    pub(super) fn write(&self, row: usize, column: usize, values: &[u32]) {
        let at = self.rows[row] as usize * self.stride + column;
        // SAFETY: the product is asked for these columns, so the contract of `new` covers them; a float and its
        // bits have the same size and alignment.
        unsafe { self.base.add(at).cast::<u32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) }
    }
}
