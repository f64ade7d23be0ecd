//! 8 lanes with AVX2, FMA and F16C.

#![expect(unsafe_code, reason = "intrinsics and vector loads")]

use std::arch::x86_64::*;

use super::panel::Panel;
use super::simd::{Kernel, Simd};
use crate::isa::Avx2;

impl Simd for Avx2 {
    const LANES: usize = 8;
    const TILE: usize = 4;
    const SEAL: u8 = 0;
    type Words = __m256i;
    type Floats = __m256;

    #[inline(always)]
    fn load16(self, panel: &Panel<'_>, at: usize) -> [__m256i; 4] {
        let base = panel.checked(8, at, 16).as_ptr();
        let stride = panel.stride();
        // SAFETY: `checked` says that 16 bytes at `at` of each of 8 rows lie inside the panel; the token proves
        // the instructions.
        unsafe {
            let row = |r: usize| _mm_loadu_si128(base.add(r * stride).cast());
            let pair = |r: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(r)), row(r + 4));
            let (a, b, c, d) = (pair(0), pair(1), pair(2), pair(3));
            let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
            [
                _mm256_unpacklo_epi64(ab0, cd0),
                _mm256_unpackhi_epi64(ab0, cd0),
                _mm256_unpacklo_epi64(ab1, cd1),
                _mm256_unpackhi_epi64(ab1, cd1),
            ]
        }
    }

    #[inline(always)]
    fn load4(self, panel: &Panel<'_>, at: usize) -> __m256i {
        let base = panel.checked(8, at, 4).as_ptr();
        // SAFETY: `checked` says that 4 bytes of each of 8 rows lie inside the panel, whose size fits the offsets; the
        // token proves the instructions.
        unsafe {
            let rows = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
            let offsets = _mm256_mullo_epi32(rows, _mm256_set1_epi32(panel.stride() as i32));
            _mm256_i32gather_epi32::<1>(base.cast(), offsets)
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn load(self, from: &[u32]) -> __m256i {
        assert!(from.len() >= 8);
        // SAFETY: 8 words are there.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m256i, to: &mut [u32]) {
        assert!(to.len() >= 8);
        // SAFETY: 8 words are there.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_max_epi32(a, b) }
    }

    #[inline(always)]
    fn shl(self, a: __m256i, n: u32) -> __m256i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn sar(self, a: __m256i, n: u32) -> __m256i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm256_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn shr(self, a: __m256i, n: u32) -> __m256i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: __m256i) -> __m256i {
        // SAFETY: the table has 16 bytes; the token proves the instructions.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        }
    }

    #[inline(always)]
    fn spread(self, bits: __m256i) -> __m256i {
        // Bit i moves to 8i + 4: the product adds shifts by 4, 11, 18 and 25, whose bits never meet.
        // SAFETY: the token proves the instructions.
        unsafe {
            let low = _mm256_and_si256(bits, _mm256_set1_epi32(0xf));
            let copies = _mm256_mullo_epi32(low, _mm256_set1_epi32(0x0204_0810));
            _mm256_and_si256(copies, _mm256_set1_epi32(0x1010_1010))
        }
    }

    #[inline(always)]
    fn seal(self, codes: __m256i) -> __m256i {
        codes
    }

    #[inline(always)]
    fn dot(self, sum: __m256i, codes: [__m256i; 2], x: [u32; 2]) -> __m256i {
        // Four products of at most 63 · 127 fit into 16 bits.
        // SAFETY: the token proves the instructions.
        unsafe {
            let first = _mm256_maddubs_epi16(codes[0], _mm256_set1_epi32(x[0] as i32));
            let second = _mm256_maddubs_epi16(codes[1], _mm256_set1_epi32(x[1] as i32));
            let fours = _mm256_add_epi16(first, second);
            _mm256_add_epi32(sum, _mm256_madd_epi16(fours, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    fn dot_sealed(self, mut sum: __m256i, codes: [__m256i; 2], x: [u32; 2]) -> __m256i {
        for (codes, x) in codes.into_iter().zip(x) {
            // One factor must be unsigned: the sign of the code moves to the activation. Two products of at most
            // 128 · 127 fit into 16 bits.
            // SAFETY: the token proves the instructions.
            unsafe {
                let x = _mm256_sign_epi8(_mm256_set1_epi32(x as i32), codes);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), x);
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            }
        }
        sum
    }

    #[inline(always)]
    fn half(self, words: __m256i) -> __m256 {
        // SAFETY: the token proves the instructions.
        unsafe {
            let low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
            let packed = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
            _mm256_cvtph_ps(packed)
        }
    }

    #[inline(always)]
    fn to_floats(self, words: __m256i) -> __m256 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_cvtepi32_ps(words) }
    }

    #[inline(always)]
    fn as_floats(self, words: __m256i) -> __m256 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_castsi256_ps(words) }
    }

    #[inline(always)]
    fn as_words(self, floats: __m256) -> __m256i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_castps_si256(floats) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn inner<K: Kernel>(simd: Avx2, kernel: K) {
            kernel.run(simd);
        }
        // SAFETY: the token proves the features.
        unsafe { inner(self, kernel) }
    }
}
