//! What the quantized matrix product asks of an instruction set.
//!
//! A vector has one lane for each of `LANES` neighbouring weight rows, so that float accumulation along k is the
//! same chain of operations in every lane of every instruction set. Formats and the tile kernel are written once
//! over this trait.

use super::panel::Panel;

/// Vectors of `LANES` 32-bit lanes. Every method is exact or correctly rounded, hence all implementations give
/// the same bits.
pub(super) trait Simd: Copy {
    /// Lanes of a vector; divides [`super::PANEL`].
    const LANES: usize;
    /// Activation rows of the largest register tile: a power of two, at most 8.
    const TILE: usize;
    /// What sealed codes exceed signed codes by: some instructions take unsigned codes only.
    const SEAL: u8;
    /// Lanes of four bytes, or of one integer modulo 2^32.
    type Words: Copy;
    /// Lanes of single precision.
    type Floats: Copy;

    /// Bytes `at .. at + 16` of every row: word `j` of the result holds bytes `at + 4j .. at + 4j + 4`.
    fn load16(self, panel: &Panel<'_>, at: usize) -> [Self::Words; 4];
    /// Bytes `at .. at + 4` of every row.
    fn load4(self, panel: &Panel<'_>, at: usize) -> Self::Words;
    /// Asks for the cache line at an address, which need not be valid, ahead of its use.
    fn prefetch(self, at: *const u8);
    /// Reads `LANES` words.
    fn load(self, from: &[u32]) -> Self::Words;
    /// Writes `LANES` words.
    fn store(self, words: Self::Words, to: &mut [u32]);

    /// The same word in every lane.
    fn splat(self, word: u32) -> Self::Words;
    /// Bitwise and.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise or.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Sum modulo 2^32.
    fn add(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Larger of two signed integers.
    fn max(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shift towards the high bits, zeros in; `n < 32`.
    fn shl(self, a: Self::Words, n: u32) -> Self::Words;
    /// Shift towards the low bits, copies of the sign in; `n < 32`.
    fn sar(self, a: Self::Words, n: u32) -> Self::Words;
    /// Shift towards the low bits, zeros in; `n < 32`.
    fn shr(self, a: Self::Words, n: u32) -> Self::Words;
    /// Replaces every byte, which must be below 16, by its entry of the table.
    fn lookup(self, table: &[u8; 16], index: Self::Words) -> Self::Words;
    /// Byte `i` becomes 16 where bit `i` of the lane is set, else 0 (`i < 4`; higher bits are ignored).
    fn spread(self, bits: Self::Words) -> Self::Words;
    /// Adds [`Simd::SEAL`] to signed bytes.
    fn seal(self, codes: Self::Words) -> Self::Words;
    /// `sum + Σ code · x` over the eight bytes of two words of every lane; codes are unsigned and at most 63, `x`
    /// holds signed bytes, none of them -128.
    fn dot(self, sum: Self::Words, codes: [Self::Words; 2], x: [u32; 2]) -> Self::Words;
    /// [`Simd::dot`] with sealed signed codes, which may be any byte.
    fn dot_sealed(self, sum: Self::Words, codes: [Self::Words; 2], x: [u32; 2]) -> Self::Words;

    /// The low 16 bits as IEEE half precision.
    fn half(self, words: Self::Words) -> Self::Floats;
    /// Signed integers, rounded to nearest even.
    fn to_floats(self, words: Self::Words) -> Self::Floats;
    /// Lanes as bit patterns of single precision.
    fn as_floats(self, words: Self::Words) -> Self::Floats;
    /// The inverse of [`Simd::as_floats`].
    fn as_words(self, floats: Self::Floats) -> Self::Words;
    /// Product.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// Runs a kernel compiled for this instruction set.
    fn enter<K: Kernel>(self, kernel: K);
}

/// A computation over any instruction set.
pub(super) trait Kernel {
    /// Runs it. Implementations are `#[inline(always)]`, so that they are compiled inside [`Simd::enter`].
    fn run<S: Simd>(self, simd: S);
}
