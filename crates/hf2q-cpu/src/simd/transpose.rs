//! Sixteen vectors, rows and columns exchanged.

use std::arch::x86_64::*;

use super::LANES;

/// Pairs of rows, pairs of pairs, then 128-bit lanes.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(super) unsafe fn avx512(r: [__m512; LANES]) -> [__m512; LANES] {
    /// Even and odd lanes of both.
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    // SAFETY: the caller vouches for the instructions; they touch registers only.
    unsafe {
        // Lane `l` of `quads[4 g + c]` is column `4 l + c` of rows `4 g ..`.
        let mut quads = r;
        let mut i = 0;
        while i < LANES {
            let (a, b, c, d) = (r[i], r[i + 1], r[i + 2], r[i + 3]);
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            quads[i] = join512::<false>(ab, cd);
            quads[i + 1] = join512::<true>(ab, cd);
            quads[i + 2] = join512::<false>(ab_high, cd_high);
            quads[i + 3] = join512::<true>(ab_high, cd_high);
            i += 4;
        }
        let mut out = r;
        let mut c = 0;
        while c < 4 {
            let [p, q, s, t] = [quads[c], quads[4 + c], quads[8 + c], quads[12 + c]];
            let (pq, st) = (_mm512_shuffle_f32x4::<EVEN>(p, q), _mm512_shuffle_f32x4::<EVEN>(s, t));
            let (pq_odd, st_odd) = (_mm512_shuffle_f32x4::<ODD>(p, q), _mm512_shuffle_f32x4::<ODD>(s, t));
            out[c] = _mm512_shuffle_f32x4::<EVEN>(pq, st);
            out[4 + c] = _mm512_shuffle_f32x4::<EVEN>(pq_odd, st_odd);
            out[8 + c] = _mm512_shuffle_f32x4::<ODD>(pq, st);
            out[12 + c] = _mm512_shuffle_f32x4::<ODD>(pq_odd, st_odd);
            c += 1;
        }
        out
    }
}

/// The low or high pairs of two vectors, by 128-bit lane.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
unsafe fn join512<const HIGH: bool>(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller vouches for the instructions; they touch registers only.
    unsafe {
        let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
        _mm512_castpd_ps(if HIGH { _mm512_unpackhi_pd(a, b) } else { _mm512_unpacklo_pd(a, b) })
    }
}

/// Four squares of eight.
///
/// # Safety
/// The machine has AVX.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(super) unsafe fn avx2(r: [(__m256, __m256); LANES]) -> [(__m256, __m256); LANES] {
    let mut out = r;
    for side in 0..2 {
        let [mut upper, mut lower] = [[r[0].0; 8]; 2];
        for i in 0..8 {
            upper[i] = if side == 0 { r[i].0 } else { r[i].1 };
            lower[i] = if side == 0 { r[8 + i].0 } else { r[8 + i].1 };
        }
        // SAFETY: the caller vouches for the instructions.
        let (upper, lower) = unsafe { (square(upper), square(lower)) };
        for i in 0..8 {
            out[8 * side + i] = (upper[i], lower[i]);
        }
    }
    out
}

/// # Safety
/// The machine has AVX.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
unsafe fn square(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the caller vouches for the instructions; they touch registers only.
    unsafe {
        let mut quads = r;
        for i in [0, 4] {
            let (ab, cd) = (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpacklo_ps(r[i + 2], r[i + 3]));
            let high = (_mm256_unpackhi_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i + 2], r[i + 3]));
            quads[i] = _mm256_shuffle_ps::<0x44>(ab, cd);
            quads[i + 1] = _mm256_shuffle_ps::<0xee>(ab, cd);
            quads[i + 2] = _mm256_shuffle_ps::<0x44>(high.0, high.1);
            quads[i + 3] = _mm256_shuffle_ps::<0xee>(high.0, high.1);
        }
        let mut out = r;
        for c in 0..4 {
            out[c] = _mm256_permute2f128_ps::<0x20>(quads[c], quads[4 + c]);
            out[4 + c] = _mm256_permute2f128_ps::<0x31>(quads[c], quads[4 + c]);
        }
        out
    }
}
