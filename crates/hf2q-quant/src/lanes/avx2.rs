//! Lanes as two 256-bit registers.

use std::arch::x86_64::*;

use super::isa::Avx2;
use super::{LANES, Routine, Simd};

/// Runs a routine compiled for the instruction set.
#[inline(always)]
#[expect(unsafe_code, reason = "a function with target features")]
pub(super) fn enter<R: Routine<Avx2>>(proof: Avx2, routine: R) -> R::Output {
    // SAFETY: the proof exists only where detection found the features.
    unsafe { run(proof, routine) }
}

#[target_feature(enable = "avx2")]
#[inline(never)]
fn run<R: Routine<Avx2>>(proof: Avx2, routine: R) -> R::Output {
    routine.call(proof)
}

/// Lanes 0..8 and 8..16.
type F = [__m256; 2];
type I = [__m256i; 2];

/// Wraps an intrinsic of two operands that needs only the proof `self`.
macro_rules! pairwise {
    ($($name:ident($in:ty) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, a: $in, b: $in) -> $out {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe { [$body(a[0], b[0]), $body(a[1], b[1])] }
        }
    )*};
}

/// Wraps an intrinsic of one operand that needs only the proof `self`.
macro_rules! each {
    ($($name:ident($in:ty) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, a: $in) -> $out {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe { [$body(a[0]), $body(a[1])] }
        }
    )*};
}

#[expect(unsafe_code, reason = "intrinsics")]
impl Avx2 {
    #[inline(always)]
    fn transpose8(self, rows: [__m256; 8]) -> [__m256; 8] {
        let mut quads = rows;
        for rows in quads.as_chunks_mut::<4>().0 {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe {
                let (a, b) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
                let (c, d) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
                // Half `h` of element `k` holds column `4 h + k` of the four rows.
                rows[0] = _mm256_shuffle_ps::<0x44>(a, c);
                rows[1] = _mm256_shuffle_ps::<0xee>(a, c);
                rows[2] = _mm256_shuffle_ps::<0x44>(b, d);
                rows[3] = _mm256_shuffle_ps::<0xee>(b, d);
            }
        }
        let mut out = rows;
        for k in 0..4 {
            // SAFETY: as above.
            unsafe {
                out[k] = _mm256_permute2f128_ps::<0x20>(quads[k], quads[k + 4]);
                out[k + 4] = _mm256_permute2f128_ps::<0x31>(quads[k], quads[k + 4]);
            }
        }
        out
    }
}

#[expect(unsafe_code, reason = "intrinsics")]
impl Simd for Avx2 {
    type F = F;
    type I = I;
    /// All bits of a lane are set, or none.
    type M = F;

    pairwise! {
        add(F) -> F = _mm256_add_ps;
        sub(F) -> F = _mm256_sub_ps;
        mul(F) -> F = _mm256_mul_ps;
        div(F) -> F = _mm256_div_ps;
        min(F) -> F = _mm256_min_ps;
        max(F) -> F = _mm256_max_ps;
        less(F) -> F = _mm256_cmp_ps::<_CMP_LT_OQ>;
        equal(F) -> F = _mm256_cmp_ps::<_CMP_EQ_OQ>;
        mask_and(F) -> F = _mm256_and_ps;
        mask_or(F) -> F = _mm256_or_ps;
        int_add(I) -> I = _mm256_add_epi32;
        int_sub(I) -> I = _mm256_sub_epi32;
        int_and(I) -> I = _mm256_and_si256;
        int_or(I) -> I = _mm256_or_si256;
        int_min(I) -> I = _mm256_min_epi32;
        int_max(I) -> I = _mm256_max_epi32;
    }

    each! {
        sqrt(F) -> F = _mm256_sqrt_ps;
        truncate(F) -> I = _mm256_cvttps_epi32;
        bits(F) -> I = _mm256_castps_si256;
        of_bits(I) -> F = _mm256_castsi256_ps;
        int_to_float(I) -> F = _mm256_cvtepi32_ps;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: `self` exists, so the instruction does; it touches registers only.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> F {
        // SAFETY: the instructions exist; the array holds sixteen values.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, v: F, to: &mut [f32; LANES]) {
        // SAFETY: the instructions exist; the array holds sixteen values.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
        }
    }

    #[inline(always)]
    fn min_across(self, a: F) -> f32 {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe {
            let eight = _mm256_min_ps(a[0], a[1]);
            let four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_min_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn max_across(self, a: F) -> f32 {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe {
            let eight = _mm256_max_ps(a[0], a[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn select(self, m: F, a: F, b: F) -> F {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe { [_mm256_blendv_ps(b[0], a[0], m[0]), _mm256_blendv_ps(b[1], a[1], m[1])] }
    }

    #[inline(always)]
    fn transpose(self, rows: [F; LANES]) -> [F; LANES] {
        let mut out = rows;
        for half in 0..2 {
            for row_half in 0..2 {
                let mut square = [rows[0][0]; 8];
                for (to, from) in square.iter_mut().zip(&rows[row_half * 8..]) {
                    *to = from[half];
                }
                for (column, to) in self.transpose8(square).into_iter().zip(&mut out[half * 8..]) {
                    to[row_half] = column;
                }
            }
        }
        out
    }

    #[inline(always)]
    fn lookup(self, table: &[f32; LANES], index: I) -> F {
        let table = self.load(table);
        let mut out = table;
        for (out, index) in out.iter_mut().zip(index) {
            // SAFETY: `self` exists, so the instructions do; they touch registers only.
            unsafe {
                let low = _mm256_permutevar8x32_ps(table[0], index);
                let high = _mm256_permutevar8x32_ps(table[1], index);
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
                *out = _mm256_blendv_ps(low, high, upper);
            }
        }
        out
    }

    #[inline(always)]
    fn int_splat(self, x: i32) -> I {
        // SAFETY: `self` exists, so the instruction does; it touches registers only.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> I {
        // SAFETY: the instructions exist; the array holds sixteen values.
        unsafe { [_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(8).cast())] }
    }

    #[inline(always)]
    fn int_store(self, v: I, to: &mut [i32; LANES]) {
        // SAFETY: the instructions exist; the array holds sixteen values.
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), v[1]);
        }
    }

    #[inline(always)]
    fn int_equal(self, a: I, b: I) -> F {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe { self.of_bits([_mm256_cmpeq_epi32(a[0], b[0]), _mm256_cmpeq_epi32(a[1], b[1])]) }
    }

    #[inline(always)]
    fn int_select(self, m: F, a: I, b: I) -> I {
        self.bits(self.select(m, self.of_bits(a), self.of_bits(b)))
    }

    #[inline(always)]
    fn int_store_bytes(self, v: I, to: &mut [u8; LANES]) {
        // SAFETY: `self` exists, so the instructions do; the array holds sixteen bytes.
        unsafe {
            let low = _mm256_set1_epi32(0xff);
            let words = _mm256_packus_epi32(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
    }

    #[inline(always)]
    fn mask_not(self, a: F) -> F {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe {
            let ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
            [_mm256_xor_ps(a[0], ones), _mm256_xor_ps(a[1], ones)]
        }
    }

    #[inline(always)]
    fn mask_bits(self, a: F) -> u16 {
        // SAFETY: `self` exists, so the instructions do; they touch registers only.
        unsafe { (_mm256_movemask_ps(a[0]) | (_mm256_movemask_ps(a[1]) << 8)) as u16 }
    }

    #[inline(always)]
    fn outline<R: Routine<Self>>(self, routine: R) -> R::Output {
        enter(self, routine)
    }
}
