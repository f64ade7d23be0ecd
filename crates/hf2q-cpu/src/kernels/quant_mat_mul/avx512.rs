//! 16 lanes with AVX-512 and VNNI.

#![expect(unsafe_code, reason = "intrinsics and vector loads")]

use std::arch::x86_64::*;

use super::panel::Panel;
use super::simd::{Kernel, Simd};
use crate::isa::Avx512;

/// Entry `n` has 16 in byte `i` where bit `i` of `n` is set.
const SPREAD: [u32; 16] = {
    let mut table = [0; 16];
    let mut n = 0;
    while n < 16 {
        let bit = n as u32;
        table[n] = (bit & 1 | (bit & 2) << 7 | (bit & 4) << 14 | (bit & 8) << 21) << 4;
        n += 1;
    }
    table
};

impl Simd for Avx512 {
    const LANES: usize = 16;
    const TILE: usize = 8;
    const SEAL: u8 = 128;
    type Words = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn load16(self, panel: &Panel<'_>, at: usize) -> [__m512i; 4] {
        let base = panel.checked(16, at, 16).as_ptr();
        let stride = panel.stride();
        // SAFETY: `checked` says that 16 bytes at `at` of each of 16 rows lie inside the panel; the token proves
        // the instructions.
        unsafe {
            let four = base.add(4 * stride);
            let eight = four.add(4 * stride);
            let twelve = eight.add(4 * stride);
            let row = |base: *const u8, r: usize| _mm_loadu_si128(base.add(r * stride).cast());
            let quad = |r: usize| {
                let v = _mm512_castsi128_si512(row(base, r));
                let v = _mm512_inserti32x4::<1>(v, row(four, r));
                let v = _mm512_inserti32x4::<2>(v, row(eight, r));
                _mm512_inserti32x4::<3>(v, row(twelve, r))
            };
            let (a, b, c, d) = (quad(0), quad(1), quad(2), quad(3));
            let (ab0, ab1) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd0, cd1) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab0, cd0),
                _mm512_unpackhi_epi64(ab0, cd0),
                _mm512_unpacklo_epi64(ab1, cd1),
                _mm512_unpackhi_epi64(ab1, cd1),
            ]
        }
    }

    #[inline(always)]
    fn load4(self, panel: &Panel<'_>, at: usize) -> __m512i {
        let base = panel.checked(16, at, 4).as_ptr();
        // SAFETY: `checked` says that 4 bytes of each of 16 rows lie inside the panel, whose size fits the offsets; the
        // token proves the instructions.
        unsafe {
            let rows = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            let offsets = _mm512_mullo_epi32(rows, _mm512_set1_epi32(panel.stride() as i32));
            _mm512_i32gather_epi32::<1>(offsets, base.cast())
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn load(self, from: &[u32]) -> __m512i {
        assert!(from.len() >= 16);
        // SAFETY: 16 words are there.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m512i, to: &mut [u32]) {
        assert!(to.len() >= 16);
        // SAFETY: 16 words are there.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_max_epi32(a, b) }
    }

    #[inline(always)]
    fn shl(self, a: __m512i, n: u32) -> __m512i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn sar(self, a: __m512i, n: u32) -> __m512i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn shr(self, a: __m512i, n: u32) -> __m512i {
        // SAFETY: the token proves the instruction. The count is a constant after inlining.
        unsafe { _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: __m512i) -> __m512i {
        // SAFETY: the table has 16 bytes; the token proves the instructions.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, index)
        }
    }

    #[inline(always)]
    fn spread(self, bits: __m512i) -> __m512i {
        // The permutation looks at the low four bits of its index only.
        // SAFETY: the table has 16 words; the token proves the instructions.
        unsafe { _mm512_permutexvar_epi32(bits, _mm512_loadu_si512(SPREAD.as_ptr().cast())) }
    }

    #[inline(always)]
    fn seal(self, codes: __m512i) -> __m512i {
        // SAFETY: the token proves the instructions.
        unsafe { _mm512_xor_si512(codes, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn dot(self, sum: __m512i, codes: [__m512i; 2], x: [u32; 2]) -> __m512i {
        // SAFETY: the token proves the instructions.
        unsafe {
            let sum = _mm512_dpbusd_epi32(sum, codes[0], _mm512_set1_epi32(x[0] as i32));
            _mm512_dpbusd_epi32(sum, codes[1], _mm512_set1_epi32(x[1] as i32))
        }
    }

    #[inline(always)]
    fn dot_sealed(self, sum: __m512i, codes: [__m512i; 2], x: [u32; 2]) -> __m512i {
        self.dot(sum, codes, x)
    }

    #[inline(always)]
    fn half(self, words: __m512i) -> __m512 {
        // SAFETY: the token proves the instructions.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)) }
    }

    #[inline(always)]
    fn to_floats(self, words: __m512i) -> __m512 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_cvtepi32_ps(words) }
    }

    #[inline(always)]
    fn as_floats(self, words: __m512i) -> __m512 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_castsi512_ps(words) }
    }

    #[inline(always)]
    fn as_words(self, floats: __m512) -> __m512i {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_castps_si512(floats) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves the instruction.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn inner<K: Kernel>(simd: Avx512, kernel: K) {
            kernel.run(simd);
        }
        // SAFETY: the token proves the features.
        unsafe { inner(self, kernel) }
    }
}
