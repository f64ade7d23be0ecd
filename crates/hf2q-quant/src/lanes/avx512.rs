//! Lanes as one 512-bit register.

use std::arch::x86_64::*;

use super::isa::Avx512;
use super::{LANES, Routine, Simd};

/// Runs a routine compiled for the instruction set.
#[inline(always)]
#[expect(unsafe_code, reason = "a function with target features")]
pub(super) fn enter<R: Routine<Avx512>>(proof: Avx512, routine: R) -> R::Output {
    // SAFETY: the proof exists only where detection found the features below, and those that they imply.
    unsafe { run(proof, routine) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
#[inline(never)]
fn run<R: Routine<Avx512>>(proof: Avx512, routine: R) -> R::Output {
    routine.call(proof)
}

/// Wraps intrinsics that need only the proof `self`.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe { $body }
        }
    )*};
}

#[expect(unsafe_code, reason = "intrinsics")]
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;

    intrinsics! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        truncate(a: __m512) -> __m512i = _mm512_cvttps_epi32(a);
        min_across(a: __m512) -> f32 = _mm512_reduce_min_ps(a);
        max_across(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
        less(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        equal(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        select(m: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        bits(a: __m512) -> __m512i = _mm512_castps_si512(a);
        of_bits(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);

        int_splat(x: i32) -> __m512i = _mm512_set1_epi32(x);
        int_add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        int_sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        int_and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        int_or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        int_min(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epi32(a, b);
        int_max(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32(a, b);
        int_equal(a: __m512i, b: __m512i) -> __mmask16 = _mm512_cmpeq_epi32_mask(a, b);
        int_select(m: __mmask16, a: __m512i, b: __m512i) -> __m512i = _mm512_mask_blend_epi32(m, b, a);
        int_to_float(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        // SAFETY: the instruction exists; the array holds sixteen values.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        // SAFETY: the instruction exists; the array holds sixteen values.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn transpose(self, rows: [__m512; LANES]) -> [__m512; LANES] {
        let mut quads = rows;
        for rows in quads.as_chunks_mut::<4>().0 {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe {
                let (a, b) = (_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[0], rows[1]));
                let (c, d) = (_mm512_unpacklo_ps(rows[2], rows[3]), _mm512_unpackhi_ps(rows[2], rows[3]));
                let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
                let (c, d) = (_mm512_castps_pd(c), _mm512_castps_pd(d));
                // Quarter `q` of element `k` holds column `4 q + k` of the four rows.
                rows[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
                rows[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
                rows[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
                rows[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
            }
        }
        let mut out = rows;
        for k in 0..4 {
            // SAFETY: as above.
            unsafe {
                let low_a = _mm512_shuffle_f32x4::<0x44>(quads[k], quads[k + 4]);
                let high_a = _mm512_shuffle_f32x4::<0xee>(quads[k], quads[k + 4]);
                let low_b = _mm512_shuffle_f32x4::<0x44>(quads[k + 8], quads[k + 12]);
                let high_b = _mm512_shuffle_f32x4::<0xee>(quads[k + 8], quads[k + 12]);
                out[k] = _mm512_shuffle_f32x4::<0x88>(low_a, low_b);
                out[k + 4] = _mm512_shuffle_f32x4::<0xdd>(low_a, low_b);
                out[k + 8] = _mm512_shuffle_f32x4::<0x88>(high_a, high_b);
                out[k + 12] = _mm512_shuffle_f32x4::<0xdd>(high_a, high_b);
            }
        }
        out
    }

    #[inline(always)]
    fn lookup(self, table: &[f32; LANES], index: __m512i) -> __m512 {
        // SAFETY: the instructions exist; the array holds sixteen values.
        unsafe { _mm512_permutexvar_ps(index, _mm512_loadu_ps(table.as_ptr())) }
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> __m512i {
        // SAFETY: the instruction exists; the array holds sixteen values.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn int_store(self, v: __m512i, to: &mut [i32; LANES]) {
        // SAFETY: the instruction exists; the array holds sixteen values.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn int_store_bytes(self, v: __m512i, to: &mut [u8; LANES]) {
        // SAFETY: the instructions exist; the array holds sixteen bytes.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v)) }
    }

    #[inline(always)]
    fn mask_and(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn mask_or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }

    #[inline(always)]
    fn mask_not(self, a: __mmask16) -> __mmask16 {
        !a
    }

    #[inline(always)]
    fn mask_bits(self, a: __mmask16) -> u16 {
        a
    }

    #[inline(always)]
    fn outline<R: Routine<Self>>(self, routine: R) -> R::Output {
        enter(self, routine)
    }
}
