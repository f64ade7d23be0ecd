//! From the layout of a file to records of 32 weights of every row of a panel.
//!
//! A record holds 8 words of codes a lane (word `j`: the codes of k = 4j .. 4j + 4), then the float scales of its
//! halves (or of the whole), then their minimums if the format has them.

use std::marker::PhantomData;
use std::ops::Range;

use hf2q_gguf::TensorType;

use super::panel::Panel;
use super::simd::{Kernel, Simd};

/// What the product of a code and an activation means; formats of one kind share the tile kernel.
pub(super) trait Kind {
    /// Scales of 32 weights: 1 or 2.
    const HALVES: usize;
    /// A weight is `scale · code + minimum`, else `scale · (code - offset)`.
    const MINIMUM: bool;
    /// Codes are sealed signed bytes, else unsigned bytes of at most 63.
    const SIGNED: bool;
    /// Vectors of floats in a record.
    const FLOATS: usize = Self::HALVES * (1 + Self::MINIMUM as usize);
}

/// One scale per 32, unsigned codes.
pub(super) struct Whole;
/// One scale per 32, signed codes.
pub(super) struct WholeSigned;
/// One scale and minimum per 32.
pub(super) struct WholeMinimum;
/// One scale per 16, unsigned codes.
pub(super) struct Half;
/// One scale and minimum per 16.
pub(super) struct HalfMinimum;

impl Kind for Whole {
    const HALVES: usize = 1;
    const MINIMUM: bool = false;
    const SIGNED: bool = false;
}

impl Kind for WholeSigned {
    const HALVES: usize = 1;
    const MINIMUM: bool = false;
    const SIGNED: bool = true;
}

impl Kind for WholeMinimum {
    const HALVES: usize = 1;
    const MINIMUM: bool = true;
    const SIGNED: bool = false;
}

impl Kind for Half {
    const HALVES: usize = 2;
    const MINIMUM: bool = false;
    const SIGNED: bool = false;
}

impl Kind for HalfMinimum {
    const HALVES: usize = 2;
    const MINIMUM: bool = true;
    const SIGNED: bool = false;
}

/// A block format.
pub(super) trait Format {
    /// Its type, which gives the sizes of a block.
    const TYPE: TensorType;
    /// Bytes of a block, which loops over blocks know when they are compiled.
    const BYTES: usize;
    /// Records of a block.
    const RECORDS: usize;
    /// What an unsigned code exceeds its value by; 0 with minimums, where it is part of them, and for sealed
    /// codes, whose offset is that of the instruction set.
    const OFFSET: i32;
    /// How codes and scales combine.
    type Kind: Kind;
    /// Puts one record for each 32 weights of a block. Implementations are `#[inline(always)]`.
    fn unpack<S: Simd>(simd: S, block: Block<'_>, tray: &mut impl Records<S>);
}

/// Takes records in ascending k.
pub(super) trait Records<S: Simd> {
    /// Takes the next one; `floats` are `FLOATS` vectors: scales, then minimums. Implementations are
    /// `#[inline(always)]`.
    fn put<const N: usize>(&mut self, simd: S, codes: [S::Words; 8], floats: [S::Floats; N]);
}

/// The same block of every row of a panel.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    panel: Panel<'a>,
    at: usize,
}

impl<'a> Block<'a> {
    /// The block that starts `at` bytes behind the start of each row.
    #[inline(always)]
    pub(super) fn new(panel: Panel<'a>, at: usize) -> Self {
        Self { panel, at }
    }

    /// Bytes `offset .. offset + 16` of the block of every row, as [`Simd::load16`] gives them. They may lie
    /// partly before or behind the block as long as they lie inside the row.
    #[inline(always)]
    pub(super) fn load16<S: Simd>(&self, simd: S, offset: usize) -> [S::Words; 4] {
        simd.load16(&self.panel, self.at + offset)
    }

    /// Bytes `offset .. offset + 4` of the block of every row, which lie inside the row.
    #[inline(always)]
    pub(super) fn load4<S: Simd>(&self, simd: S, offset: usize) -> S::Words {
        simd.load4(&self.panel, self.at + offset)
    }

    /// Bytes `offset .. offset + 32`.
    #[inline(always)]
    pub(super) fn load32<S: Simd>(&self, simd: S, offset: usize) -> [S::Words; 8] {
        let (low, high) = (self.load16(simd, offset), self.load16(simd, offset + 16));
        [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
    }
}

/// Where records are laid down one after another.
pub(super) struct Tray<'a> {
    words: &'a mut [u32],
    used: usize,
}

impl<S: Simd> Records<S> for Tray<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, simd: S, codes: [S::Words; 8], floats: [S::Floats; N]) {
        let record = &mut self.words[self.used..self.used + S::LANES * (8 + N)];
        for (to, word) in record.chunks_exact_mut(S::LANES).zip(codes) {
            simd.store(word, to);
        }
        for (to, float) in record[S::LANES * 8..].chunks_exact_mut(S::LANES).zip(floats) {
            simd.store(simd.as_words(float), to);
        }
        self.used += S::LANES * (8 + N);
    }
}

/// Unpacks a range of blocks of a panel.
pub(super) struct Unpack<'a, F> {
    /// The rows.
    pub(super) panel: Panel<'a>,
    /// Which blocks of them.
    pub(super) blocks: Range<usize>,
    /// Where the records go.
    pub(super) records: &'a mut [u32],
    /// The format.
    pub(super) format: PhantomData<F>,
}

impl<F: Format> Kernel for Unpack<'_, F> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let bytes = F::BYTES;
        let mut tray = Tray { words: self.records, used: 0 };
        for block in self.blocks {
            self.panel.ask_for_next(simd, block * bytes, bytes);
            F::unpack(simd, Block::new(self.panel, block * bytes), &mut tray);
        }
    }
}

// Unpacking is written with loops over arrays rather than closures: a closure is compiled without the features of
// the instruction set, and one that is too large to be inlined would call a function for each instruction.

/// Codes of 32 weights whose halves are the low and the high nibbles of 16 bytes.
#[inline(always)]
pub(super) fn nibbles<S: Simd>(simd: S, bytes: [S::Words; 4]) -> [S::Words; 8] {
    let mut codes = [bytes[0]; 8];
    for (j, &four) in bytes.iter().enumerate() {
        codes[j] = bits(simd, four, 0, 4);
        codes[j + 4] = bits(simd, four, 4, 4);
    }
    codes
}

/// [`bits`] of each word.
#[inline(always)]
pub(super) fn all_bits<S: Simd>(simd: S, mut bytes: [S::Words; 8], shift: u32, width: u32) -> [S::Words; 8] {
    for four in &mut bytes {
        *four = bits(simd, *four, shift, width);
    }
    bytes
}

/// Puts bits above those of the codes: `width` bits of each byte of `high` from bit `shift` on, moved to bit `to`.
#[inline(always)]
pub(super) fn join<S: Simd>(
    simd: S,
    mut codes: [S::Words; 8],
    high: &[S::Words; 8],
    (shift, width, to): (u32, u32, u32),
) -> [S::Words; 8] {
    for (code, &high) in codes.iter_mut().zip(high) {
        *code = simd.or(*code, simd.shl(bits(simd, high, shift, width), to));
    }
    codes
}

/// Replaces codes below 16 by their entries of a table.
#[inline(always)]
pub(super) fn look_up<S: Simd>(simd: S, table: &[u8; 16], mut codes: [S::Words; 8]) -> [S::Words; 8] {
    for code in &mut codes {
        *code = simd.lookup(table, *code);
    }
    codes
}

/// Bits `shift .. shift + width` of every byte, as bytes.
#[inline(always)]
pub(super) fn bits<S: Simd>(simd: S, bytes: S::Words, shift: u32, width: u32) -> S::Words {
    let mask = ((1 << width) - 1) * 0x0101_0101;
    simd.and(simd.shr(bytes, shift), simd.splat(mask))
}

/// Byte `i` of every lane as an unsigned integer.
#[inline(always)]
pub(super) fn byte<S: Simd>(simd: S, words: S::Words, i: usize) -> S::Words {
    simd.and(simd.shr(words, 8 * i as u32), simd.splat(0xff))
}

/// The same float in every lane.
#[inline(always)]
pub(super) fn splat<S: Simd>(simd: S, value: f32) -> S::Floats {
    simd.as_floats(simd.splat(value.to_bits()))
}

/// Adds a fifth bit to the codes of 32 weights; bit `k` of the lane belongs to code `k`.
#[inline(always)]
pub(super) fn fifth_bits<S: Simd>(simd: S, mut codes: [S::Words; 8], high: S::Words) -> [S::Words; 8] {
    for (j, code) in codes.iter_mut().enumerate() {
        *code = simd.or(*code, simd.spread(simd.shr(high, 4 * j as u32)));
    }
    codes
}
