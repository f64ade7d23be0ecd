//! Levels by permutations of eight entries, larger tables by gathers.

use std::arch::x86_64::*;

use hf2q_quant::kv::Turbo;
use hf2q_quant::kv::codebook::{LEVELS_2, LEVELS_3, LEVELS_4};

/// The signed levels of two bits, twice: permutations stay within four entries.
static TABLE_2: [f32; 8] = [
    LEVELS_2[0],
    LEVELS_2[1],
    -LEVELS_2[0],
    -LEVELS_2[1],
    LEVELS_2[0],
    LEVELS_2[1],
    -LEVELS_2[0],
    -LEVELS_2[1],
];
static TABLE_3: [f32; 8] =
    [LEVELS_3[0], LEVELS_3[1], LEVELS_3[2], LEVELS_3[3], LEVELS_3[0], LEVELS_3[1], LEVELS_3[2], LEVELS_3[3]];
static TABLE_4: [f32; 8] = LEVELS_4;

/// # Safety
/// The machine has AVX2; `8 · BITS` bytes from `group` are readable, and `j` is below 4.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
pub(crate) unsafe fn read<const BITS: usize>(group: *const u8, j: usize) -> (__m256, __m256) {
    // SAFETY: the caller vouches for the instructions and the bytes.
    unsafe { (half::<BITS>(group, j, 0), half::<BITS>(group, j, 1)) }
}

/// Lanes 0..8 or 8..16.
///
/// # Safety
/// As for [`read`]; `part` is 0 or 1.
#[inline(always)]
#[expect(unsafe_code, reason = "intrinsics")]
unsafe fn half<const BITS: usize>(group: *const u8, j: usize, part: usize) -> __m256 {
    // SAFETY: the caller vouches for the instructions and the bytes; planes lie one behind the other.
    unsafe {
        match BITS {
            2 => _mm256_permutevar_ps(table(&TABLE_2), plane2(group, j, part)),
            3 => {
                let size = _mm256_permutevar_ps(table(&TABLE_3), plane2(group, j, part));
                flip(size, _mm256_slli_epi32::<31>(plane1(group.add(16), j, part)))
            }
            4 => {
                let codes = plane4(group, j, part);
                let size = _mm256_permutevar8x32_ps(table(&TABLE_4), codes);
                flip(size, _mm256_slli_epi32::<28>(codes))
            }
            5 => {
                let low = _mm256_and_si256(plane4(group, j, part), _mm256_set1_epi32(15));
                let high = _mm256_and_si256(plane1(group.add(32), j, part), _mm256_set1_epi32(1));
                gather(Turbo::Tq5, _mm256_or_si256(low, _mm256_slli_epi32::<4>(high)))
            }
            6 => {
                let low = _mm256_and_si256(plane4(group, j, part), _mm256_set1_epi32(15));
                let high = _mm256_and_si256(plane2(group.add(32), j, part), _mm256_set1_epi32(3));
                gather(Turbo::Tq6, _mm256_or_si256(low, _mm256_slli_epi32::<4>(high)))
            }
            8 => {
                let words = _mm256_loadu_si256(group.add(32 * part).cast());
                gather(Turbo::Tq8, _mm256_and_si256(right(words, 8 * j), _mm256_set1_epi32(255)))
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
        /// The machine has AVX2, and the bytes that are read are readable.
        #[inline(always)]
        #[expect(unsafe_code, reason = "intrinsics")]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: the caller vouches for the instructions and the bytes.
            unsafe { $body }
        }
    )*};
}

pieces! {
    /// Eight entries.
    table(from: &[f32; 8]) -> __m256 = _mm256_loadu_ps(from.as_ptr());
    /// Shifts by the same number of bits in all lanes.
    right(v: __m256i, bits: usize) -> __m256i = _mm256_srl_epi32(v, _mm_cvtsi64_si128(bits as i64));
    /// Four bits from bit 0 on.
    plane4(from: *const u8, j: usize, part: usize) -> __m256i =
        right(_mm256_loadu_si256(from.cast()), 8 * j + 4 * part);
    /// Two bits from bit 0 on.
    plane2(from: *const u8, j: usize, part: usize) -> __m256i = {
        let words = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast()));
        let lanes = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
        right(_mm256_srlv_epi32(words, lanes), 8 * j + 4 * part)
    };
    /// One bit, bit 0.
    plane1(from: *const u8, j: usize, part: usize) -> __m256i = {
        let words = _mm256_set1_epi64x(from.cast::<i64>().read_unaligned());
        let lanes = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
        right(_mm256_srlv_epi32(words, lanes), 8 * j + 4 * part)
    };
    /// Changes the sign where the highest bit is set.
    flip(size: __m256, by: __m256i) -> __m256 = {
        let sign = _mm256_and_ps(_mm256_castsi256_ps(by), _mm256_set1_ps(-0.0));
        _mm256_xor_ps(size, sign)
    };
    /// The values of whole codes, which have no other bits set.
    gather(turbo: Turbo, codes: __m256i) -> __m256 = _mm256_i32gather_ps::<4>(turbo.values().as_ptr(), codes);
}
