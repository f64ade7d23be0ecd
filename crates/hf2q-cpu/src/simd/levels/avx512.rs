//! Levels by permutations of tables that lie in registers: 16 entries in one, 32 in two.

use std::arch::x86_64::*;

use hf2q_quant::kv::codebook::{LEVELS_2, LEVELS_3, LEVELS_4, LEVELS_5, LEVELS_6, LEVELS_8};

use crate::simd::LANES;

/// `levels`, then their negatives, repeated: bits of an index above the code do not matter.
const fn signed<const N: usize>(levels: [f32; N]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    let mut i = 0;
    while i < LANES {
        let level = levels[i % N];
        out[i] = if (i / N).is_multiple_of(2) { level } else { -level };
        i += 1;
    }
    out
}

/// `levels`, repeated: bits of an index above those of the magnitude do not matter.
const fn repeated<const N: usize>(levels: [f32; N]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    let mut i = 0;
    while i < LANES {
        out[i] = levels[i % N];
        i += 1;
    }
    out
}

static TABLE_2: [f32; LANES] = signed(LEVELS_2);
static TABLE_3: [f32; LANES] = repeated(LEVELS_3);
static TABLE_4: [f32; LANES] = signed(LEVELS_4);
static TABLE_5: [f32; LANES] = LEVELS_5;
static TABLE_6: [f32; 2 * LANES] = LEVELS_6;
static TABLE_8: [f32; 8 * LANES] = LEVELS_8;

/// # Safety
/// The machine has AVX-512; `8 · BITS` bytes from `group` are readable, and `j` is below 4.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(crate) unsafe fn read<const BITS: usize>(group: *const u8, j: usize) -> __m512 {
    // SAFETY: the caller vouches for the instructions and the bytes; planes lie one behind the other.
    unsafe {
        match BITS {
            2 => _mm512_permutexvar_ps(right(plane2(group), 8 * j), table(&TABLE_2, 0)),
            3 => {
                let size = _mm512_permutexvar_ps(right(plane2(group), 8 * j), table(&TABLE_3, 0));
                flip(size, left(plane1(group.add(16)), 24 - 8 * j))
            }
            4 => _mm512_permutexvar_ps(right(plane4(group), 8 * j), table(&TABLE_4, 0)),
            5 => {
                let size = _mm512_permutexvar_ps(right(plane4(group), 8 * j), table(&TABLE_5, 0));
                flip(size, left(plane1(group.add(32)), 24 - 8 * j))
            }
            6 => {
                let high = plane2_at_4(group.add(32));
                // Where the mask is set the low bits, elsewhere the high ones.
                const CHOOSE: i32 = 0xca;
                let (low, middle) = (right(plane4(group), 8 * j), right(high, 8 * j));
                let index = _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_set1_epi32(15), low, middle);
                let (a, b) = (table(&TABLE_6, 0), table(&TABLE_6, 1));
                flip(_mm512_permutex2var_ps(a, index, b), left(high, 26 - 8 * j))
            }
            8 => {
                let codes = _mm512_loadu_si512(group.cast());
                flip(of_128(right(codes, 8 * j)), left(codes, 24 - 8 * j))
            }
            _ => unreachable!("codes have 2, 3, 4, 5, 6 or 8 bits"),
        }
    }
}

/// Wraps functions of registers and of readable memory.
macro_rules! pieces {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The machine has AVX-512, and the bytes that are read are readable.
        #[inline(always)]
        #[expect(unsafe_code, reason = "intrinsics")]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: the caller vouches for the instructions and the bytes.
            unsafe { $body }
        }
    )*};
}

pieces! {
    /// Sixteen entries of a table.
    table(from: &[f32], part: usize) -> __m512 = _mm512_loadu_ps(from[part * LANES..][..LANES].as_ptr());
    /// Shifts by the same number of bits in all lanes.
    right(v: __m512i, bits: usize) -> __m512i = _mm512_srl_epi32(v, _mm_cvtsi64_si128(bits as i64));
    left(v: __m512i, bits: usize) -> __m512i = _mm512_sll_epi32(v, _mm_cvtsi64_si128(bits as i64));
    /// Four bits from bit `8 j` on.
    plane4(from: *const u8) -> __m512i = {
        let words = _mm512_broadcast_i64x4(_mm256_loadu_si256(from.cast()));
        _mm512_srlv_epi32(words, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4))
    };
    /// Two bits from bit `8 j` on.
    plane2(from: *const u8) -> __m512i = {
        let words = _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast()));
        _mm512_srlv_epi32(words, _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6))
    };
    /// Two bits from bit `8 j + 4` on.
    plane2_at_4(from: *const u8) -> __m512i = {
        let words = _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast()));
        _mm512_rolv_epi32(words, _mm512_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0, 30, 30, 30, 30))
    };
    /// One bit, bit `8 j + 7`.
    plane1(from: *const u8) -> __m512i = {
        let words = _mm512_set1_epi64(from.cast::<i64>().read_unaligned());
        _mm512_sllv_epi32(words, _mm512_setr_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0))
    };
    /// Changes the sign where the highest bit is set.
    flip(size: __m512, by: __m512i) -> __m512 = {
        /// `a ^ (b & c)`.
        const XOR_AND: i32 = 0x78;
        let sign = _mm512_set1_epi32(i32::MIN);
        _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<XOR_AND>(_mm512_castps_si512(size), by, sign))
    };
    /// Entries of [`TABLE_8`]: index bits 0 to 4 choose within pairs of registers, bits 5 and 6 among the pairs.
    of_128(index: __m512i) -> __m512 = {
        let (bit5, bit6) = (_mm512_set1_epi32(32), _mm512_set1_epi32(64));
        let (bit5, bit6) = (_mm512_test_epi32_mask(index, bit5), _mm512_test_epi32_mask(index, bit6));
        let a = _mm512_permutex2var_ps(table(&TABLE_8, 0), index, table(&TABLE_8, 1));
        let b = _mm512_permutex2var_ps(table(&TABLE_8, 2), index, table(&TABLE_8, 3));
        let c = _mm512_permutex2var_ps(table(&TABLE_8, 4), index, table(&TABLE_8, 5));
        let d = _mm512_permutex2var_ps(table(&TABLE_8, 6), index, table(&TABLE_8, 7));
        let (low, high) = (_mm512_mask_blend_ps(bit5, a, b), _mm512_mask_blend_ps(bit5, c, d));
        _mm512_mask_blend_ps(bit6, low, high)
    };
}
