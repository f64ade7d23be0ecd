//! Activations as signed bytes with one scale per 32, which is what quantized weights are multiplied with.

use super::cells::Cells;
#[cfg(target_arch = "x86_64")]
use super::octets::{self, OctetRow};
#[cfg(target_arch = "x86_64")]
use super::quantize_avx512;
use crate::isa::{Isa, Vectorize};

/// Values that share a scale.
pub const GROUP: usize = 32;

/// Below this largest magnitude a group counts as zero: the inverse of its scale would leave single precision.
pub(super) const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Quantized rows of equal length: per 32 values 32 codes, a scale and two sums of 16 codes. A value is
/// `code · scale`. Reused from step to step without a new allocation. Rows can be held a second time in octets, for
/// products of many rows.
#[derive(Debug, Default)]
pub struct QuantRows {
    rows: usize,
    n_in: usize,
    codes: Cells<i8>,
    scales: Cells<f32>,
    sums: Cells<i32>,
    /// Empty, or the rows as [`octets`] says, from the first cache line on.
    #[cfg(target_arch = "x86_64")]
    pub(super) octets: Cells<u32>,
    /// What codes in octets are exclusive-ored with.
    #[cfg(target_arch = "x86_64")]
    pub(super) flip: u8,
}

/// One row of [`QuantRows`].
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// `[n_in]`, none of them -128.
    pub codes: &'a [i8],
    /// `[n_in / 32]`; NaN where an input was not finite.
    pub scales: &'a [f32],
    /// `[n_in / 16]`: sums of codes.
    pub sums: &'a [i32],
}

/// One row of [`QuantRows`] to be written; shapes as in [`Row`].
#[derive(Debug)]
pub struct RowOut<'a> {
    /// Codes.
    pub codes: &'a mut [i8],
    /// Scales.
    pub scales: &'a mut [f32],
    /// Sums of codes.
    pub sums: &'a mut [i32],
    /// Where the row is written a second time.
    #[cfg(target_arch = "x86_64")]
    pub(super) octet: Option<OctetRow<'a>>,
}

/// Rows picked from a set: row `i` of the product belongs to row `rows[i]` of `x`. A row may be picked twice.
#[derive(Clone, Copy, Debug)]
pub struct Picked<'a> {
    /// The set.
    pub x: &'a QuantRows,
    /// Indices into it.
    pub rows: &'a [u32],
}

impl QuantRows {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `rows` rows of `n_in` values, a multiple of 32. What the rows hold is unspecified until
    /// they are written.
    pub fn resize(&mut self, rows: usize, n_in: usize) {
        assert!(n_in.is_multiple_of(GROUP), "rows are quantized in groups of 32");
        (self.rows, self.n_in) = (rows, n_in);
        self.codes.resize(rows * n_in);
        self.scales.resize(rows * n_in / GROUP);
        self.sums.resize(rows * n_in / 16);
        #[cfg(target_arch = "x86_64")]
        self.octets.resize(0);
    }

    /// Bytes of `rows` rows of `n_in` values, with or without octets.
    pub fn bytes_of(rows: usize, n_in: usize, in_octets: bool) -> usize {
        let floats = n_in / GROUP * size_of::<f32>() + n_in / 16 * size_of::<i32>();
        #[cfg(target_arch = "x86_64")]
        let octets = if in_octets { octets::words(rows, n_in) } else { 0 };
        #[cfg(not(target_arch = "x86_64"))]
        let octets = if in_octets { unreachable!("no instruction set reads octets") } else { 0_usize };
        rows.saturating_mul(n_in + floats).saturating_add(octets.saturating_mul(size_of::<u32>()))
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes() + self.sums.bytes() + self.octet_bytes()
    }

    #[cfg(target_arch = "x86_64")]
    fn octet_bytes(&self) -> usize {
        self.octets.bytes()
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn octet_bytes(&self) -> usize {
        0
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// One row.
    pub fn row(&self, row: usize) -> Row<'_> {
        let part = |per_row: usize| row * per_row..(row + 1) * per_row;
        Row {
            codes: self.codes.get(part(self.n_in)),
            scales: self.scales.get(part(self.n_in / GROUP)),
            sums: self.sums.get(part(self.n_in / 16)),
        }
    }

    /// One row to be written.
    pub fn row_mut(&mut self, row: usize) -> RowOut<'_> {
        let part = |per_row: usize| row * per_row..(row + 1) * per_row;
        RowOut {
            codes: &mut self.codes.get_mut()[part(self.n_in)],
            scales: &mut self.scales.get_mut()[part(self.n_in / GROUP)],
            sums: &mut self.sums.get_mut()[part(self.n_in / 16)],
            #[cfg(target_arch = "x86_64")]
            octet: None,
        }
    }

    /// One row to be written while other threads write other rows.
    ///
    /// # Safety
    ///
    /// While the result is alive nobody else reads or writes this row.
    #[expect(unsafe_code, reason = "threads write different rows at the same time")]
    pub unsafe fn row_shared(&self, row: usize) -> RowOut<'_> {
        let part = |per_row: usize| row * per_row..(row + 1) * per_row;
        // SAFETY: the caller has the row alone.
        unsafe {
            RowOut {
                codes: self.codes.shared_mut(part(self.n_in)),
                scales: self.scales.shared_mut(part(self.n_in / GROUP)),
                sums: self.sums.shared_mut(part(self.n_in / 16)),
                #[cfg(target_arch = "x86_64")]
                octet: None,
            }
        }
    }

    /// All rows to be written. Empty if rows have no values.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = RowOut<'_>> {
        let n = self.n_in.max(GROUP);
        let scales = self.scales.get_mut().chunks_exact_mut(n / GROUP);
        let sums = self.sums.get_mut().chunks_exact_mut(n / 16);
        let rows = self.codes.get_mut().chunks_exact_mut(n).zip(scales.zip(sums));
        rows.map(|(codes, (scales, sums))| RowOut {
            codes,
            scales,
            sums,
            #[cfg(target_arch = "x86_64")]
            octet: None,
        })
    }
}

/// No instruction set here reads octets.
#[cfg(not(target_arch = "x86_64"))]
impl QuantRows {
    /// Nothing.
    pub fn add_octets(&mut self, _isa: Isa) {}

    /// [`QuantRows::row_shared`].
    ///
    /// # Safety
    ///
    /// As there.
    #[expect(unsafe_code, reason = "threads write different rows at the same time")]
    pub unsafe fn row_in_octets(&self, row: usize) -> RowOut<'_> {
        // SAFETY: the contract is the same.
        unsafe { self.row_shared(row) }
    }
}

/// Quantizes a row: `scale = max|x| / 127`, codes rounded to nearest even. A group with a value that is not
/// finite gets a NaN scale, which every product with it then shows. Same bits on every instruction set.
///
/// # Panics
///
/// If the shapes differ.
pub fn quantize_row(isa: Isa, x: &[f32], out: RowOut<'_>) {
    assert!(
        x.len() == out.codes.len() && x.len() == out.scales.len() * GROUP && x.len() == out.sums.len() * 16
    );
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(token) => quantize_avx512::row(token.avx512(), x, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(token) => quantize_avx512::row(token, x, out),
        _ => isa.vectorize(Quantize { x, out }),
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    out: RowOut<'a>,
}

impl Vectorize for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let groups = self.x.as_chunks::<GROUP>().0.iter().zip(self.out.codes.as_chunks_mut::<GROUP>().0);
        for ((x, codes), scale) in groups.zip(&mut *self.out.scales) {
            let (d, inverse) = scale_of(x);
            *scale = d;
            // Opaque, so that the compiler puts the values of a group into lanes and not the groups of a row.
            let inverse = std::hint::black_box(inverse);
            // The local array tells it that nothing the loop writes is an input.
            let mut rounded = [0; GROUP];
            for (q, &x) in rounded.iter_mut().zip(x) {
                *q = round(x * inverse);
            }
            // A product of zero and a value that is not finite is no code.
            *codes = if inverse == 0.0 { [0; GROUP] } else { rounded };
        }
        for (sum, codes) in self.out.sums.iter_mut().zip(self.out.codes.as_chunks::<16>().0) {
            *sum = sum_of(codes);
        }
    }
}

/// Sum of codes. Offset by 128 they are unsigned bytes; eight of them are added at a time in 16-bit fields of a
/// word, and the product adds the fields up in the topmost.
#[inline(always)]
fn sum_of(codes: &[i8; 16]) -> i32 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let mut fields = 0;
    for eight in codes.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(eight.map(|code| code as u8)) ^ 0x8080_8080_8080_8080;
        fields += (word & EVEN) + (word >> 8 & EVEN);
    }
    (fields.wrapping_mul(0x0001_0001_0001_0001) >> 48) as i32 - 16 * 128
}

/// The scale of a group and what to multiply values with to get codes.
#[inline(always)]
fn scale_of(x: &[f32; GROUP]) -> (f32, f32) {
    // Magnitudes order as their bit patterns do, with everything that is not finite on top.
    let mut largest = 0;
    for v in x {
        largest = largest.max(v.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < TINY {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

/// Rounds a magnitude of at most 127 to nearest even: added to 1.5 · 2^23 it ends up in the low bits.
#[inline(always)]
fn round(x: f32) -> i8 {
    (x + 12_582_912.0).to_bits() as i8
}
