//! Octets by byte dot products of vectors.
//!
//! Activations are the unsigned side, 128 above their codes, and weights the signed one: what is too much depends on
//! the column alone, so it is part of a record. Each broadcast activation is used for two panels.

#![expect(unsafe_code, reason = "intrinsics and vector loads")]

use std::arch::x86_64::*;

use super::many::{Engine, LANES, OctetSums, PANELS, panel_words};
use super::octets::{OCTET, Part};
use super::unpack::Kind;
use crate::isa::Avx512;

impl Engine for Avx512 {
    const FLIP: u8 = 0x80;
    const CORRECTED: bool = true;
    const WORDS: usize = 0;
    type Ready = ();

    fn vectors(self) -> Avx512 {
        self
    }

    fn prepare<K: Kind>(self) {}

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn octet<K: Kind>(weights: *const u32, x: Part<'_>, _memory: &mut [u32], to: &mut OctetSums) {
        let (panel, size) = (panel_words::<Self, K>(x.len()), panel_words::<Self, K>(1));
        let mut sums = *to;
        for i in 0..x.len() {
            // SAFETY: the caller vouches for as many records of both panels.
            unsafe {
                let weights = [weights.add(i * size), weights.add(panel + i * size)];
                for half in 0..K::HALVES {
                    add::<K>(weights, (x, i, half), &mut sums);
                }
            }
        }
        *to = sums;
    }
}

/// One scale's worth of a record: exact integer sums, then one fused step each (two with minimums).
///
/// # Safety
///
/// `weights` is a record of each panel, and `i` one of `x`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn add<K: Kind>(
    weights: [*const u32; PANELS],
    (x, i, half): (Part<'_>, usize, usize),
    sums: &mut OctetSums,
) {
    // SAFETY: a record has eight vectors of codes, then its floats and corrections; the caller vouches for it.
    let words = |panel: usize, i: usize| unsafe { _mm512_loadu_si512(weights[panel].add(i * LANES).cast()) };
    let floats = |i: usize| [_mm512_castsi512_ps(words(0, 8 + i)), _mm512_castsi512_ps(words(1, 8 + i))];
    // SAFETY: the caller vouches for the record.
    let (codes, x) = unsafe { (x.codes(i), x.floats(i)) };
    let correction = 8 + K::FLOATS + half;
    let mut dots = [[words(0, correction), words(1, correction)]; OCTET];
    let each = 8 / K::HALVES;
    for j in half * each..(half + 1) * each {
        let weights = [words(0, j), words(1, j)];
        for (row, dots) in dots.iter_mut().enumerate() {
            // SAFETY: a record has eight words of codes for each row.
            let four = _mm512_set1_epi32(unsafe { *codes.add(8 * row + j) } as i32);
            for (dot, weight) in dots.iter_mut().zip(weights) {
                *dot = _mm512_dpbusd_epi32(*dot, four, weight);
            }
        }
    }
    let scales = floats(half);
    for (row, (dots, sums)) in dots.iter().zip(sums.iter_mut()).enumerate() {
        let scale = _mm512_set1_ps(x.scale(row));
        for ((&dot, sum), w) in dots.iter().zip(sums).zip(scales) {
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(w, scale), *sum);
        }
    }
    if K::MINIMUM {
        let minimums = floats(K::HALVES + half);
        for (row, sums) in sums.iter_mut().enumerate() {
            let correction = _mm512_set1_ps(x.sum(K::HALVES, half, row));
            for (sum, minimum) in sums.iter_mut().zip(minimums) {
                *sum = _mm512_fmadd_ps(minimum, correction, *sum);
            }
        }
    }
}
