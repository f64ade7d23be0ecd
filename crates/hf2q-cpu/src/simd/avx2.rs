//! Lanes as two 256-bit registers.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};
use crate::isa::Avx2;

/// Runs a kernel compiled for the instruction set.
#[inline(always)]
#[expect(unsafe_code, reason = "a function with target features")]
pub(super) fn enter<K: Kernel>(s: Avx2, kernel: K) -> K::Output {
    // SAFETY: the token exists only where detection found the features.
    unsafe { run(s, kernel) }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn run<K: Kernel>(s: Avx2, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Lanes 0..8 and 8..16.
type V = (__m256, __m256);

/// Lane `i` plus lane `i + 4`, then 2 and 1 apart.
///
/// # Safety
/// The machine has AVX.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: the caller vouches for the instructions; they touch registers only.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
    }
}

/// The largest lane, in the tree of [`sum8`].
///
/// # Safety
/// The machine has AVX.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(super) unsafe fn largest8(v: __m256) -> f32 {
    // SAFETY: the caller vouches for the instructions; they touch registers only.
    unsafe {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
    }
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
impl Simd for Avx2 {
    type V = V;

    const WIDE: bool = false;

    #[inline(always)]
    fn outline<K: Kernel>(self, kernel: K) -> K::Output {
        enter(self, kernel)
    }

    intrinsics! {
        splat(x: f32) -> V = (_mm256_set1_ps(x), _mm256_set1_ps(x));
        add(a: V, b: V) -> V = (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1));
        sub(a: V, b: V) -> V = (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1));
        mul(a: V, b: V) -> V = (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1));
        div(a: V, b: V) -> V = (_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1));
        fma(a: V, b: V, c: V) -> V = (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1));
        max(a: V, b: V) -> V = (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1));
        min(a: V, b: V) -> V = (_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1));
        abs(v: V) -> V = {
            let sign = _mm256_set1_ps(-0.0);
            (_mm256_andnot_ps(sign, v.0), _mm256_andnot_ps(sign, v.1))
        };
        with_sign(v: V, s: V) -> V = {
            let sign = _mm256_set1_ps(-0.0);
            (_mm256_or_ps(v.0, _mm256_and_ps(s.0, sign)), _mm256_or_ps(v.1, _mm256_and_ps(s.1, sign)))
        };
        pow2(t: V) -> V = {
            let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
            let low = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(t.0)), one);
            let high = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(t.1)), one);
            (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        };
        sum(v: V) -> f32 = sum8(_mm256_add_ps(v.0, v.1));
        largest(v: V) -> f32 = largest8(_mm256_max_ps(v.0, v.1));
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> V {
        // SAFETY: the instruction exists; the array holds sixteen values.
        unsafe { (_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())) }
    }

    #[inline(always)]
    fn store(self, v: V, to: &mut [f32; LANES]) {
        let (low, high) = to.split_at_mut(8);
        // SAFETY: the instruction exists; each half holds eight values.
        unsafe {
            _mm256_storeu_ps(low.as_mut_ptr(), v.0);
            _mm256_storeu_ps(high.as_mut_ptr(), v.1);
        }
    }

    #[inline(always)]
    fn store_f16(self, v: V, to: &mut [u16; LANES]) {
        let (low, high) = to.split_at_mut(8);
        // SAFETY: the instructions exist; each half holds 16 bytes.
        unsafe {
            _mm_storeu_si128(low.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(high.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        }
    }

    #[inline(always)]
    unsafe fn read_f32(self, from: *const u8) -> V {
        // SAFETY: the instruction exists; the caller vouches for 64 bytes.
        unsafe { (_mm256_loadu_ps(from.cast()), _mm256_loadu_ps(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn read_f16(self, from: *const u8) -> V {
        // SAFETY: the instructions exist; the caller vouches for 32 bytes.
        unsafe {
            let (low, high) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast()));
            (_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }

    #[inline(always)]
    unsafe fn read_bf16(self, from: *const u8) -> V {
        // SAFETY: the instructions exist; the caller vouches for 32 bytes.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(16).cast()));
            let (low, high) = (_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high));
            (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }

    #[inline(always)]
    unsafe fn read_i8(self, from: *const u8) -> V {
        // SAFETY: the instructions exist; the caller vouches for 16 bytes.
        unsafe {
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            (_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    unsafe fn read_levels<const BITS: usize>(self, group: *const u8, j: usize) -> V {
        // SAFETY: the instructions exist; the caller vouches for the group.
        unsafe { super::levels::avx2::read::<BITS>(group, j) }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint, which does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    #[inline(always)]
    fn if_less(self, (a, b): (V, V), x: V, y: V) -> V {
        // SAFETY: the instructions exist; they touch registers only.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0);
            let high = _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1);
            (_mm256_blendv_ps(y.0, x.0, low), _mm256_blendv_ps(y.1, x.1, high))
        }
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, (a, b): V) -> V {
        // SAFETY: the instructions exist; they touch registers only.
        unsafe {
            match DISTANCE {
                1 => (_mm256_permute_ps::<0b10_11_00_01>(a), _mm256_permute_ps::<0b10_11_00_01>(b)),
                2 => (_mm256_permute_ps::<0b01_00_11_10>(a), _mm256_permute_ps::<0b01_00_11_10>(b)),
                4 => (_mm256_permute2f128_ps::<1>(a, a), _mm256_permute2f128_ps::<1>(b, b)),
                8 => (b, a),
                _ => unreachable!("distances are 1, 2, 4 and 8"),
            }
        }
    }

    #[inline(always)]
    fn transpose(self, rows: [V; LANES]) -> [V; LANES] {
        // SAFETY: the instructions exist.
        unsafe { super::transpose::avx2(rows) }
    }

    #[inline(always)]
    fn in_lanes(self, v: V, (low, high): (usize, usize), other: V) -> V {
        let mut mask = [0_i32; LANES];
        mask[low.min(high)..high].fill(-1);
        // SAFETY: the instructions exist; the array holds two registers.
        unsafe {
            let a = _mm256_loadu_ps(mask.as_ptr().cast());
            let b = _mm256_loadu_ps(mask[8..].as_ptr().cast());
            (_mm256_blendv_ps(other.0, v.0, a), _mm256_blendv_ps(other.1, v.1, b))
        }
    }
}
