//! Products of many rows: eight rows and two panels of columns at a time.
//!
//! Both panels are unpacked, some k at a time, to records in the first-level cache, and all octets of rows pass over
//! them. What multiplies an octet with a record is left to an [`Engine`]; how its integer sums become floats is that of
//! the tile kernel, so results have the bits of all other kernels.

#![expect(unsafe_code, reason = "functions with target features, vector loads")]

use std::arch::x86_64::*;
use std::ops::Range;

use super::octets::{self, OCTET, Part};
use super::output::OutputRows;
use super::panel::Panel;
use super::product::{Call, Scratch, padded};
use super::simd::Simd;
use super::unpack::{Block, Format, Kind, Records};
use crate::isa::Avx512;

/// Lanes of a vector, columns of a panel.
pub(super) const LANES: usize = 16;

/// Panels that are multiplied together.
pub(super) const PANELS: usize = 2;

/// Records of 32 k that are unpacked at a time; with two panels some 30 kB, which leaves room for the activations of an
/// octet in a first-level cache of 48 kB. A multiple of the records of every block.
const RANGE: usize = 24;

/// Words of activations that one block of rows may take, so that they stay in a second-level cache.
const BLOCK_WORDS: usize = 256 << 10;

/// Words of the float sums of an octet.
const OCTET_SUMS: usize = OCTET * PANELS * LANES;

/// The float sums of an octet: rows, then panels.
pub(super) type OctetSums = [[__m512; PANELS]; OCTET];

/// What multiplies an octet of rows with two panels.
pub(super) trait Engine: Copy {
    /// What codes of activations are exclusive-ored with before they are multiplied: 0x80 makes them unsigned.
    const FLIP: u8;
    /// Whether records end with a vector of integers for each half, the correction of what [`Engine::FLIP`] adds.
    const CORRECTED: bool;
    /// Words of memory that it needs.
    const WORDS: usize;
    /// What keeps the processor ready.
    type Ready;

    /// The vectors that it comes with.
    fn vectors(self) -> Avx512;

    /// Prepares this thread for products of a kind.
    fn prepare<K: Kind>(self) -> Self::Ready;

    /// Adds the product of some records to the sums of an octet.
    ///
    /// # Safety
    ///
    /// The engine is prepared for the kind and has its memory; `weights` has as many records of each panel, one panel
    /// after the other, as `x` of the octet.
    unsafe fn octet<K: Kind>(weights: *const u32, x: Part<'_>, memory: &mut [u32], sums: &mut OctetSums);
}

/// Words of so many records of a panel.
pub(super) const fn panel_words<E: Engine, K: Kind>(records: usize) -> usize {
    records * LANES * (8 + K::FLOATS + if E::CORRECTED { K::HALVES } else { 0 })
}

/// Computes a product of weights of one format.
pub(super) fn product<E: Engine, F: Format>(engine: E, call: &mut Call<'_>) {
    let (m, rows) = (call.matrix, call.input.rows.len());
    call.scratch.renew();
    let Scratch { stream, records, sums, ragged, tiles, .. } = &mut *call.scratch;
    let x = if call.laid_out {
        call.input.x.octets(rows)
    } else {
        let to = stream.get(octets::words(rows, m.n_in));
        octets::gather(engine.vectors(), call.input, E::FLIP, to);
        &*to
    };
    let octet = octets::octet_words(m.n_in / 32);
    let octets = (BLOCK_WORDS / octet).max(4);
    let records = records.get(PANELS * panel_words::<E, F::Kind>(RANGE));
    let (sums, memory) = (sums.get(octets * OCTET_SUMS), tiles.get(E::WORDS));
    let _ready = engine.prepare::<F::Kind>();
    for (block, x) in x.chunks(octets * octet).enumerate() {
        let first = block * octets * OCTET;
        let out = call.out.part(first..rows.min(first + octets * OCTET));
        for column in call.cols.clone().step_by(PANELS * LANES) {
            let columns = column..call.cols.end.min(column + PANELS * LANES);
            let bytes = &m.weight[column * m.row_bytes..columns.end * m.row_bytes];
            let whole = PANELS * LANES * m.row_bytes;
            let weights = if bytes.len() < whole { padded(ragged, bytes, whole) } else { bytes };
            let work = Work { records: &mut *records, sums: &mut *sums, memory: &mut *memory };
            let pair = Pair { weights, row_bytes: m.row_bytes, x, out, columns, work };
            // SAFETY: the engine proves the vectors, and is prepared.
            unsafe { pair.multiply::<E, F>(engine.vectors()) };
        }
    }
}

/// Memory of a pass, each part from a cache line on.
struct Work<'a> {
    /// [`RANGE`] records of each panel.
    records: &'a mut [u32],
    /// Float sums of each octet between ranges of k.
    sums: &'a mut [u32],
    /// Of the engine.
    memory: &'a mut [u32],
}

/// Two panels of columns and a block of octets.
struct Pair<'a> {
    weights: &'a [u8],
    row_bytes: usize,
    x: &'a [u32],
    out: OutputRows<'a>,
    /// Which columns are written; those of padding are not.
    columns: Range<usize>,
    work: Work<'a>,
}

impl Pair<'_> {
    /// # Safety
    ///
    /// The engine is prepared for the kind of the format.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn multiply<E: Engine, F: Format>(mut self, simd: Avx512) {
        let total = self.row_bytes / F::TYPE.block_bytes() * (F::TYPE.block_len() / 32);
        let size = octets::octet_words(total);
        for first in (0..total).step_by(RANGE) {
            let range = first..total.min(first + RANGE);
            self.unpack::<E, F>(simd, range.clone());
            for i in 0..self.out.len().div_ceil(OCTET) {
                let x = Part::new(&self.x[i * size..(i + 1) * size], total, range.clone());
                let at = &mut self.work.sums[i * OCTET_SUMS..][..OCTET_SUMS];
                let mut sums =
                    if first == 0 { [[_mm512_setzero_ps(); PANELS]; OCTET] } else { load_sums(at) };
                let weights = self.work.records.as_ptr();
                // SAFETY: the range is unpacked, and the caller has prepared the engine.
                unsafe { E::octet::<F::Kind>(weights, x, self.work.memory, &mut sums) };
                if range.end == total { self.write(i, &sums) } else { store_sums(at, &sums) }
            }
        }
    }

    /// Unpacks records of both panels, one panel after the other.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn unpack<E: Engine, F: Format>(&mut self, simd: Avx512, range: Range<usize>) {
        let per_block = F::TYPE.block_len() / 32;
        let (rows, panel) = (LANES * self.row_bytes, panel_words::<E, F::Kind>(range.len()));
        let offset = if F::Kind::SIGNED { Avx512::SEAL } else { F::OFFSET as u8 };
        let halves = if E::CORRECTED { F::Kind::HALVES } else { 0 };
        for (bytes, words) in self.weights.chunks_exact(rows).zip(self.work.records.chunks_exact_mut(panel)) {
            let mut tray = SignedTray { words, used: 0, offset, halves };
            for block in range.start / per_block..range.end / per_block {
                let at = block * F::TYPE.block_bytes();
                F::unpack(simd, Block::new(Panel::new(bytes, self.row_bytes), at), &mut tray);
            }
        }
    }

    /// Writes the sums of an octet where results go.
    #[target_feature(enable = "avx512f")]
    fn write(&self, octet: usize, sums: &OctetSums) {
        for (row, sums) in (octet * OCTET..self.out.len()).zip(sums) {
            for (panel, &sum) in sums.iter().enumerate() {
                let column = self.columns.start + panel * LANES;
                let width = self.columns.end.saturating_sub(column).min(LANES);
                self.out.write_lanes((row, column), sum, width);
            }
        }
    }
}

/// Takes records as [`super::unpack::Tray`] does, with signed codes: what they exceed their values by is taken off.
/// Corrections of so many halves follow the floats: `-128 · Σ code`.
struct SignedTray<'a> {
    words: &'a mut [u32],
    used: usize,
    offset: u8,
    halves: usize,
}

impl Records<Avx512> for SignedTray<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, simd: Avx512, mut codes: [__m512i; 8], floats: [__m512; N]) {
        let size = LANES * (8 + N + self.halves);
        let record = &mut self.words[self.used..self.used + size];
        self.used += size;
        for (to, code) in record.chunks_exact_mut(LANES).zip(&mut codes) {
            // SAFETY: the token proves the instructions.
            *code = unsafe { _mm512_sub_epi8(*code, _mm512_set1_epi8(self.offset as i8)) };
            simd.store(*code, to);
        }
        for (to, float) in record[LANES * 8..].chunks_exact_mut(LANES).zip(floats) {
            simd.store(simd.as_words(float), to);
        }
        let mut half = 0;
        while half < self.halves {
            let each = 8 / self.halves;
            let mut sum = simd.splat(0);
            for &code in &codes[half * each..(half + 1) * each] {
                // SAFETY: the token proves the instructions.
                sum = unsafe { _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), code) };
            }
            // SAFETY: the token proves the instructions.
            let correction = unsafe { _mm512_sub_epi32(_mm512_setzero_si512(), sum) };
            simd.store(correction, &mut record[LANES * (8 + N + half)..][..LANES]);
            half += 1;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_sums(from: &[u32]) -> OctetSums {
    let vectors = from.as_chunks::<LANES>().0;
    let mut sums = [[_mm512_setzero_ps(); PANELS]; OCTET];
    for (sum, from) in sums.as_flattened_mut().iter_mut().zip(vectors) {
        // SAFETY: a vector holds sixteen words.
        *sum = unsafe { _mm512_loadu_ps(from.as_ptr().cast()) };
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_sums(to: &mut [u32], sums: &OctetSums) {
    for (to, &sum) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.as_flattened()) {
        // SAFETY: a vector holds sixteen words.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().cast(), sum) }
    }
}
