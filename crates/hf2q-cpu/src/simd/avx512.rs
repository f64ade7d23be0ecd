//! Lanes as one 512-bit register.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};
use crate::isa::Avx512;

/// Runs a kernel compiled for the instruction set.
#[inline(always)]
#[expect(unsafe_code, reason = "a function with target features")]
pub(super) fn enter<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
    // SAFETY: the token exists only where detection found the features.
    unsafe { run(s, kernel) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline(never)]
fn run<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
    kernel.run(s)
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
    type V = __m512;

    const WIDE: bool = true;

    #[inline(always)]
    fn outline<K: Kernel>(self, kernel: K) -> K::Output {
        enter(self, kernel)
    }

    intrinsics! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        abs(v: __m512) -> __m512 = _mm512_abs_ps(v);
        with_sign(v: __m512, sign: __m512) -> __m512 =
            _mm512_or_ps(v, _mm512_and_ps(sign, _mm512_set1_ps(-0.0)));
        pow2(t: __m512) -> __m512 = {
            let shifted = _mm512_slli_epi32::<23>(_mm512_castps_si512(t));
            _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_castps_si512(_mm512_set1_ps(1.0))))
        };
        sum(v: __m512) -> f32 = {
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            super::avx2::sum8(v)
        };
        largest(v: __m512) -> f32 = {
            let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            super::avx2::largest8(v)
        };
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
    fn store_f16(self, v: __m512, to: &mut [u16; LANES]) {
        // SAFETY: the instructions exist; the array holds 32 bytes.
        unsafe {
            let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn read_f32(self, from: *const u8) -> __m512 {
        // SAFETY: the instruction exists; the caller vouches for 64 bytes.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn read_f16(self, from: *const u8) -> __m512 {
        // SAFETY: the instructions exist; the caller vouches for 32 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn read_bf16(self, from: *const u8) -> __m512 {
        // SAFETY: the instructions exist; the caller vouches for 32 bytes.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn read_i8(self, from: *const u8) -> __m512 {
        // SAFETY: the instructions exist; the caller vouches for 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn read_levels<const BITS: usize>(self, group: *const u8, j: usize) -> __m512 {
        // SAFETY: the instructions exist; the caller vouches for the group.
        unsafe { super::levels::avx512::read::<BITS>(group, j) }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint, which does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    #[inline(always)]
    fn if_less(self, (a, b): (__m512, __m512), x: __m512, y: __m512) -> __m512 {
        // SAFETY: the instructions exist; they touch registers only.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, v: __m512) -> __m512 {
        // SAFETY: the instructions exist; they touch registers only.
        unsafe {
            match DISTANCE {
                1 => _mm512_permute_ps::<0b10_11_00_01>(v),
                2 => _mm512_permute_ps::<0b01_00_11_10>(v),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v),
                8 => _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v),
                _ => unreachable!("distances are 1, 2, 4 and 8"),
            }
        }
    }

    #[inline(always)]
    fn transpose(self, rows: [__m512; LANES]) -> [__m512; LANES] {
        // SAFETY: the instructions exist.
        unsafe { super::transpose::avx512(rows) }
    }

    #[inline(always)]
    fn in_lanes(self, v: __m512, (low, high): (usize, usize), other: __m512) -> __m512 {
        let below = |n: usize| ((1_u32 << n.min(LANES)) - 1) as u16;
        let mask = below(high) & !below(low);
        // SAFETY: the instruction exists; it touches registers only.
        unsafe { _mm512_mask_blend_ps(mask, other, v) }
    }
}
