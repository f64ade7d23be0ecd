//! Octets by the matrix tiles of AMX.
//!
//! A tile instruction multiplies the codes of eight rows and sixteen columns over the 32 (or 16) k that share scales:
//! the integer sums of a group, exact. They pass through memory, tiles being no vectors, and are scaled while those of
//! the next record are made.

#![expect(unsafe_code, reason = "tile instructions, intrinsics and vector loads")]

use std::arch::asm;
use std::arch::x86_64::*;

use super::many::{Engine, LANES, OctetSums, PANELS, panel_words};
use super::octets::{Floats, OCTET, Part};
use super::unpack::Kind;
use crate::isa::{Amx, Avx512};

/// Words of a tile of sums: eight rows of sixteen.
const TILE: usize = OCTET * LANES;

/// Words of the integer sums of a record: two halves, two panels.
const RECORD_SUMS: usize = 2 * PANELS * TILE;

impl Engine for Amx {
    const FLIP: u8 = 0;
    const CORRECTED: bool = false;
    const WORDS: usize = 2 * RECORD_SUMS;
    type Ready = Configured;

    fn vectors(self) -> Avx512 {
        self.avx512()
    }

    fn prepare<K: Kind>(self) -> Configured {
        Configured::new::<K>(self)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn octet<K: Kind>(weights: *const u32, x: Part<'_>, memory: &mut [u32], to: &mut OctetSums) {
        assert!(memory.len() >= Self::WORDS, "two records of integer sums");
        let (panel, size) = (panel_words::<Self, K>(x.len()), panel_words::<Self, K>(1));
        let memory = memory.as_mut_ptr();
        let mut sums = *to;
        // SAFETY: the caller vouches for records and tiles; there is memory for the sums of two records.
        unsafe {
            let weight = |i: usize| [weights.add(i * size), weights.add(panel + i * size)];
            let tiles = |i: usize| memory.add(i % 2 * RECORD_SUMS);
            for i in 0..x.len() {
                multiply::<K>(x.codes(i), weight(i), tiles(i));
                if i > 0 {
                    add::<K>(tiles(i - 1), weight(i - 1), x.floats(i - 1), &mut sums);
                }
            }
            if let Some(last) = x.len().checked_sub(1) {
                add::<K>(tiles(last), weight(last), x.floats(last), &mut sums);
            }
        }
        *to = sums;
    }
}

/// The integer sums of a record: eight rows of each panel, for each half that has its own scale.
///
/// # Safety
///
/// Tiles are configured for the kind; `x` holds the codes of an octet, `weights` one of each panel, and `to` has
/// [`RECORD_SUMS`] words.
#[inline(always)]
unsafe fn multiply<K: Kind>(x: *const u32, weights: [*const u32; PANELS], to: *mut u32) {
    // SAFETY: the caller vouches for the memory. No tile is used outside one block of instructions.
    unsafe {
        if K::HALVES == 1 {
            asm!(
                "tileloadd tmm4, [{x} + {row}*1]",
                "tileloadd tmm5, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                "tilezero tmm0",
                "tilezero tmm1",
                "tdpbssd tmm0, tmm4, tmm5",
                "tdpbssd tmm1, tmm4, tmm6",
                "tilestored [{to} + {line}*1], tmm0",
                "tilestored [{to} + {line}*1 + 512], tmm1",
                x = in(reg) x, a = in(reg) weights[0], b = in(reg) weights[1], to = in(reg) to,
                row = in(reg) 32_usize, line = in(reg) 64_usize,
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
                options(nostack, preserves_flags)
            );
        } else {
            asm!(
                "tileloadd tmm4, [{x} + {row}*1]",
                "tileloadd tmm5, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tdpbssd tmm0, tmm4, tmm5",
                "tdpbssd tmm1, tmm4, tmm6",
                "tileloadd tmm7, [{x} + {row}*1 + 16]",
                "tileloadd tmm5, [{a} + {line}*1 + 256]",
                "tileloadd tmm6, [{b} + {line}*1 + 256]",
                "tdpbssd tmm2, tmm7, tmm5",
                "tdpbssd tmm3, tmm7, tmm6",
                "tilestored [{to} + {line}*1], tmm0",
                "tilestored [{to} + {line}*1 + 512], tmm1",
                "tilestored [{to} + {line}*1 + 1024], tmm2",
                "tilestored [{to} + {line}*1 + 1536], tmm3",
                x = in(reg) x, a = in(reg) weights[0], b = in(reg) weights[1], to = in(reg) to,
                row = in(reg) 32_usize, line = in(reg) 64_usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// One fused step for each integer sum (two with minimums), in the order of the tile kernel of the other sets.
///
/// # Safety
///
/// `tiles` and `weights` are what [`multiply`] wrote and read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn add<K: Kind>(
    tiles: *const u32,
    weights: [*const u32; PANELS],
    x: Floats<'_>,
    sums: &mut OctetSums,
) {
    for half in 0..K::HALVES {
        // SAFETY: a record has eight vectors of codes, then those of its floats; the caller vouches for both.
        let float =
            |panel: usize, i: usize| unsafe { _mm512_loadu_ps(weights[panel].add((8 + i) * LANES).cast()) };
        let scales = [float(0, half), float(1, half)];
        for (row, sums) in sums.iter_mut().enumerate() {
            let scale = _mm512_set1_ps(x.scale(row));
            for (panel, sum) in sums.iter_mut().enumerate() {
                let at = (half * PANELS + panel) * TILE + row * LANES;
                // SAFETY: the caller vouches for the integer sums.
                let products = unsafe { _mm512_loadu_si512(tiles.add(at).cast()) };
                let step = _mm512_mul_ps(scales[panel], scale);
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), step, *sum);
            }
        }
        if K::MINIMUM {
            let minimums = [float(0, K::HALVES + half), float(1, K::HALVES + half)];
            for (row, sums) in sums.iter_mut().enumerate() {
                let correction = _mm512_set1_ps(x.sum(K::HALVES, half, row));
                for (sum, minimum) in sums.iter_mut().zip(minimums) {
                    *sum = _mm512_fmadd_ps(minimum, correction, *sum);
                }
            }
        }
    }
}

/// Tiles of this thread are configured as long as it lives.
pub(super) struct Configured(Amx);

impl Configured {
    /// Tiles 0 to 3 are sums, 4 and 7 codes of activations, 5 and 6 codes of weights.
    fn new<K: Kind>(token: Amx) -> Self {
        let k = 32 / K::HALVES;
        let mut config = Config::default();
        (0..4).for_each(|tile| config.set(tile, OCTET, 64));
        [4, 7].into_iter().for_each(|tile| config.set(tile, OCTET, k));
        [5, 6].into_iter().for_each(|tile| config.set(tile, k / 4, 64));
        Self::with(token, &config)
    }

    fn with(token: Amx, config: &Config) -> Self {
        // SAFETY: the token proves the instruction; the configuration has its 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack, preserves_flags, readonly)) };
        Self(token)
    }
}

/// Shapes of tiles, as the processor reads them.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    reserved: [u8; 15],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Default for Config {
    fn default() -> Self {
        Self { palette: 1, reserved: [0; 15], row_bytes: [0; 16], rows: [0; 16] }
    }
}

impl Config {
    fn set(&mut self, tile: usize, rows: usize, row_bytes: usize) {
        (self.rows[tile], self.row_bytes[tile]) = (rows as u8, row_bytes as u16);
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _proof = self.0;
        // SAFETY: the token proves the instruction; nobody expects tiles to keep what they hold.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

/// Runs so many rounds of the products of full tiles; returns their number of multiplications and additions.
pub(super) fn dots(token: Amx, rounds: usize) -> usize {
    let mut config = Config::default();
    (0..8).for_each(|tile| config.set(tile, 16, 64));
    let configured = Configured::with(token, &config);
    for _ in 0..rounds {
        // SAFETY: the token proves the instructions; tiles hold zeros, and are used nowhere else.
        unsafe {
            asm!(
                "tdpbssd tmm0, tmm6, tmm7",
                "tdpbssd tmm1, tmm6, tmm7",
                "tdpbssd tmm2, tmm6, tmm7",
                "tdpbssd tmm3, tmm6, tmm7",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, nomem, preserves_flags)
            );
        }
    }
    drop(configured);
    rounds * 4 * 2 * (16 * 16 * 64)
}
