//! Activations in groups of eight rows, in the order in which products of many rows read them.
//!
//! First the codes: for each 32 k a record of 32 bytes for each row, as the instructions want them. Then floats, for
//! sixteen records at a time: the scales of each row, then what minimums of weights are multiplied with, `scale · Σ code`
//! of each row over all 32 codes of a record, over the first 16 and over the last 16. Rows that an octet lacks hold
//! anything; what is computed of them is not written.

#![expect(unsafe_code, reason = "threads write different rows of one octet; vector loads")]

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::activations::{GROUP, Picked, QuantRows, Row, RowOut};
use super::product::flip;
use crate::isa::{Avx512, Isa};

/// Rows of an octet.
pub(super) const OCTET: usize = 8;

/// Words of the codes of a record.
const CODES: usize = 8 * OCTET;

/// Records whose floats lie together: as many as a vector has lanes.
const CHUNK: usize = 16;

/// Words of one of the four arrays of floats of a chunk.
const ARRAY: usize = OCTET * CHUNK;

/// Words of so many rows of `n_in` values, whole octets.
pub(super) fn words(rows: usize, n_in: usize) -> usize {
    rows.div_ceil(OCTET) * octet_words(n_in / 32)
}

/// Words of an octet of so many records.
pub(super) fn octet_words(records: usize) -> usize {
    records * CODES + records.div_ceil(CHUNK) * 4 * ARRAY
}

impl QuantRows {
    /// Makes room for all rows in octets, too, as an instruction set wants them.
    pub fn add_octets(&mut self, isa: Isa) {
        const LINE: usize = 64 / size_of::<u32>();
        self.flip = flip(isa);
        self.octets.resize(words(self.rows(), self.n_in()) + LINE);
    }

    /// One row to be written, here and in its octet, while other threads write other rows.
    ///
    /// # Panics
    ///
    /// If there is no room for octets.
    ///
    /// # Safety
    ///
    /// While the result is alive nobody else reads or writes this row, and nobody reads its octet.
    pub unsafe fn row_in_octets(&self, row: usize) -> RowOut<'_> {
        let records = self.n_in() / GROUP;
        let start = self.octets.aligned() + row / OCTET * octet_words(records);
        let octet = self.octets.pointer(start..start + octet_words(records));
        // SAFETY: the pointer is that of an octet, of which the caller has the row alone.
        unsafe {
            let octet = OctetRow::new(octet, records, row % OCTET, self.flip);
            RowOut { octet: Some(octet), ..self.row_shared(row) }
        }
    }

    /// The octets of the first rows. Rows that were not written by way of [`QuantRows::row_in_octets`] are not in it.
    pub(super) fn octets(&self, rows: usize) -> &[u32] {
        let start = self.octets.aligned();
        self.octets.get(start..start + words(rows, self.n_in()))
    }
}

/// Some records of an octet.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    octet: &'a [u32],
    records: usize,
    first: usize,
    len: usize,
}

impl<'a> Part<'a> {
    /// `range` of the records of an octet of `records`.
    pub(super) fn new(octet: &'a [u32], records: usize, range: Range<usize>) -> Self {
        assert!(octet.len() == octet_words(records) && range.end <= records, "records of an octet");
        Self { octet, records, first: range.start, len: range.len() }
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The codes of a record: eight words for each row.
    ///
    /// # Safety
    ///
    /// `i` is below [`Part::len`].
    #[inline(always)]
    pub(super) unsafe fn codes(&self, i: usize) -> *const u32 {
        // SAFETY: the record is in the octet.
        unsafe { self.octet.as_ptr().add((self.first + i) * CODES) }
    }

    /// The floats of a record.
    ///
    /// # Safety
    ///
    /// `i` is below [`Part::len`].
    #[inline(always)]
    pub(super) unsafe fn floats(&self, i: usize) -> Floats<'a> {
        let record = self.first + i;
        let at = self.records * CODES + record / CHUNK * 4 * ARRAY + record % CHUNK;
        // SAFETY: the record is in the octet.
        Floats { start: unsafe { self.octet.as_ptr().add(at).cast() }, memory: PhantomData }
    }
}

/// The floats of a record of an octet.
#[derive(Clone, Copy)]
pub(super) struct Floats<'a> {
    start: *const f32,
    memory: PhantomData<&'a u32>,
}

impl Floats<'_> {
    /// The scale of a row.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize) -> f32 {
        self.get(0, row)
    }

    /// `scale · Σ code` of a row: over a half of the record where `halves` is 2, else over all of it.
    #[inline(always)]
    pub(super) fn sum(&self, halves: usize, half: usize, row: usize) -> f32 {
        self.get(if halves == 1 { 1 } else { 2 + half }, row)
    }

    #[inline(always)]
    fn get(&self, array: usize, row: usize) -> f32 {
        assert!(array < 4 && row < OCTET, "a float of a record");
        // SAFETY: the chunk has four arrays of eight rows.
        unsafe { *self.start.add(array * ARRAY + row * CHUNK) }
    }
}

/// Where one row of an octet is written.
#[derive(Debug)]
pub(super) struct OctetRow<'a> {
    start: *mut u32,
    records: usize,
    row: usize,
    flip: u8,
    memory: PhantomData<&'a mut u32>,
}

impl OctetRow<'_> {
    /// Row `row` of an octet of so many records, whose codes are exclusive-ored with `flip`.
    ///
    /// # Safety
    ///
    /// While the result is alive `start` must be valid for the octet, and nobody else reads or writes the row's words
    /// of it.
    pub(super) unsafe fn new(start: *mut u32, records: usize, row: usize, flip: u8) -> Self {
        assert!(row < OCTET, "row {row} of an octet");
        Self { start, records, row, flip, memory: PhantomData }
    }

    /// Writes the row.
    pub(super) fn write(&mut self, simd: Avx512, row: Row<'_>) {
        let records = self.records;
        assert!(
            row.codes.len() == records * 32 && row.scales.len() == records && row.sums.len() == records * 2,
            "records of a row"
        );
        let _proof = simd;
        // SAFETY: the token proves the instructions.
        unsafe {
            self.codes(row.codes);
            self.floats(row);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn codes(&mut self, codes: &[i8]) {
        let flip = _mm256_set1_epi8(self.flip as i8);
        for (i, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            // SAFETY: there are no more codes than records, and the words are those of this row: see `new`.
            unsafe {
                let to = self.start.add(i * CODES + self.row * 8);
                let codes = _mm256_loadu_si256(codes.as_ptr().cast());
                _mm256_storeu_si256(to.cast(), _mm256_xor_si256(codes, flip));
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn floats(&mut self, row: Row<'_>) {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        for (chunk, scales) in row.scales.chunks(CHUNK).enumerate() {
            let (n, sums) = (scales.len(), &row.sums[chunk * 2 * CHUNK..]);
            let some = |n: usize| (1_u32 << n.min(CHUNK)).wrapping_sub(1) as u16;
            // SAFETY: the masks end loads and stores with the row's last record; the words are those of this row.
            unsafe {
                let scale = _mm512_maskz_loadu_ps(some(n), scales.as_ptr());
                let a = _mm512_maskz_loadu_epi32(some(2 * n), sums.as_ptr());
                let rest = sums.as_ptr().wrapping_add(CHUNK);
                let b = _mm512_maskz_loadu_epi32(some((2 * n).saturating_sub(CHUNK)), rest);
                let (low, high) =
                    (_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
                let to = self.start.add(self.records * CODES + chunk * 4 * ARRAY + self.row * CHUNK);
                _mm512_mask_storeu_ps(to.cast(), some(n), scale);
                for (array, &sum) in [_mm512_add_epi32(low, high), low, high].iter().enumerate() {
                    let float = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
                    _mm512_mask_storeu_ps(to.add((1 + array) * ARRAY).cast(), some(n), float);
                }
            }
        }
    }
}

/// Lays out the picked rows, with codes exclusive-ored with `flip`, in `to`, which has [`words`] for them.
pub(super) fn gather(simd: Avx512, input: Picked<'_>, flip: u8, to: &mut [u32]) {
    let records = input.x.n_in() / 32;
    assert!(to.len() >= words(input.rows.len(), input.x.n_in()), "words for octets");
    let octets = to.chunks_exact_mut(octet_words(records));
    for (octet, rows) in octets.zip(input.rows.chunks(OCTET)) {
        for (i, &row) in rows.iter().enumerate() {
            // SAFETY: the slice has the octet, and is borrowed exclusively.
            unsafe { OctetRow::new(octet.as_mut_ptr(), records, i, flip) }
                .write(simd, input.x.row(row as usize));
        }
    }
}
