//! Quantizing activations sixteen groups at a time, each in a lane where scales are computed.
//!
//! The operations on each value are those of [`super::quantize_row`] for other instruction sets.

#![expect(unsafe_code, reason = "vector loads and stores")]

use std::arch::x86_64::*;

use super::activations::{GROUP, Row, RowOut, TINY};
use crate::isa::Avx512;

/// Groups that are quantized together.
const GROUPS: usize = 16;

/// Quantizes a row, and writes it to its octet; lengths have been checked.
pub(super) fn row(simd: Avx512, x: &[f32], mut out: RowOut<'_>) {
    // SAFETY: the token proves the instructions.
    unsafe { groups(x, &mut out) }
    if let Some(mut octet) = out.octet {
        octet.write(simd, Row { codes: out.codes, scales: out.scales, sums: out.sums });
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn groups(x: &[f32], out: &mut RowOut<'_>) {
    let parts = x.chunks(GROUPS * GROUP).zip(out.codes.chunks_mut(GROUPS * GROUP));
    for ((x, codes), (scales, sums)) in
        parts.zip(out.scales.chunks_mut(GROUPS).zip(out.sums.chunks_mut(2 * GROUPS)))
    {
        let mut largest = [_mm512_setzero_si512(); GROUPS];
        for (largest, x) in largest.iter_mut().zip(x.as_chunks::<GROUP>().0) {
            let [a, b] = load(x);
            let magnitude = _mm512_set1_epi32(0x7fff_ffff);
            let a = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
            *largest = _mm512_max_epu32(a, _mm512_and_si512(_mm512_castps_si512(b), magnitude));
        }
        let (scale, inverse) = scales_of(_mm512_castsi512_ps(largest_of(largest)));
        let (mut all_scales, mut inverses) = ([0.0; GROUPS], [0.0; GROUPS]);
        // SAFETY: the arrays have sixteen floats.
        unsafe {
            _mm512_storeu_ps(all_scales.as_mut_ptr(), scale);
            _mm512_storeu_ps(inverses.as_mut_ptr(), inverse);
        }
        scales.copy_from_slice(&all_scales[..scales.len()]);
        let groups = x.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
        for ((x, codes), inverse) in groups.zip(inverses) {
            codes_of(x, inverse, codes);
        }
        sum(codes, sums);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; GROUP]) -> [__m512; 2] {
    // SAFETY: a group has two vectors of floats.
    unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16))] }
}

/// Codes of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn codes_of(x: &[f32; GROUP], inverse: f32, codes: &mut [i8; GROUP]) {
    let [a, b] = load(x);
    let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(rounded(a, inverse)), rounded(b, inverse));
    // SAFETY: a group has 32 bytes.
    unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), both) };
}

/// Sums of each sixteen codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn sum(codes: &[i8], sums: &mut [i32]) {
    const STEP: usize = 4 * GROUP;
    // In the low halves of the quadwords below: sums of the first vector, then of the second.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    for (codes, sums) in codes.chunks(STEP).zip(sums.chunks_mut(STEP / 16)) {
        let (first, second) = codes.split_at(codes.len().min(STEP / 2));
        let (a, b) = (eights(first), eights(second));
        let both = _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        let sixteens = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, both));
        let mask = (1_u32 << sums.len().min(8)).wrapping_sub(1) as u8;
        // SAFETY: the mask ends the store with the sums.
        unsafe {
            let sixteens = _mm256_sub_epi32(sixteens, _mm256_set1_epi32(16 * 128));
            _mm256_mask_storeu_epi32(sums.as_mut_ptr(), mask, sixteens);
        }
    }
}

/// Sums of each eight codes, with 128 added to each code; of up to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn eights(codes: &[i8]) -> __m512i {
    let mask = (1_u64 << (codes.len() & 63)).wrapping_sub(1) | if codes.len() >= 64 { !0 } else { 0 };
    // SAFETY: the mask ends the load with the codes.
    let codes = unsafe { _mm512_maskz_loadu_epi8(mask, codes.as_ptr()) };
    _mm512_sad_epu8(_mm512_xor_si512(codes, _mm512_set1_epi8(-128)), _mm512_setzero_si512())
}

/// Codes of half a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn rounded(x: __m512, inverse: f32) -> __m128i {
    // A product of zero and a value that is not finite is no code.
    let all = if inverse == 0.0 { 0 } else { !0 };
    // Added to 1.5 · 2^23 an integer ends up in the low bits, rounded to nearest even.
    let sum = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(inverse)), _mm512_set1_ps(12_582_912.0));
    _mm512_maskz_cvtepi32_epi8(all, _mm512_castps_si512(sum))
}

/// Scales, and what to multiply values with to get codes, of the largest magnitude of each group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn scales_of(largest: __m512) -> (__m512, __m512) {
    let most = _mm512_set1_ps(127.0);
    // Not below, so that what is no number passes.
    let sized = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(largest, _mm512_set1_ps(TINY));
    let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(largest, _mm512_set1_ps(f32::INFINITY));
    let scale = _mm512_maskz_div_ps(sized, largest, most);
    let scale = _mm512_mask_blend_ps(finite, _mm512_set1_ps(f32::NAN), scale);
    (scale, _mm512_maskz_div_ps(sized & finite, most, largest))
}

/// Lane `i` is the largest lane of vector `i`, as unsigned integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn largest_of(v: [__m512i; GROUPS]) -> __m512i {
    // Each step halves the number of vectors: of two, one half of the lanes is compared with the other.
    let (mut quads, mut pairs, mut ones) = ([v[0]; 8], [v[0]; 4], [v[0]; 2]);
    for (i, to) in quads.iter_mut().enumerate() {
        let (a, b) = (v[i], v[i + 8]);
        let (low, high) =
            (_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b));
        *to = _mm512_max_epu32(low, high);
    }
    for (i, to) in pairs.iter_mut().enumerate() {
        let (a, b) = (quads[i], quads[i + 4]);
        let (low, high) =
            (_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b));
        *to = _mm512_max_epu32(low, high);
    }
    for (i, to) in ones.iter_mut().enumerate() {
        let (a, b) = (pairs[i], pairs[i + 2]);
        *to = _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    }
    let (a, b) = (_mm512_castsi512_ps(ones[0]), _mm512_castsi512_ps(ones[1]));
    let (low, high) = (_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b));
    let all = _mm512_max_epu32(_mm512_castps_si512(low), _mm512_castps_si512(high));
    _mm512_permutexvar_epi32(order(), all)
}

/// Where [`largest_of`] leaves the lane of each vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn order() -> __m512i {
    _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15)
}
