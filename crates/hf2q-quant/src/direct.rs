//! Encoders of the formats whose blocks are 32 values under a scale that the extreme values decide. A block is two
//! vectors; nothing is searched, so they are as fast as memory.

use std::marker::PhantomData;

use crate::groups::LEN;
use crate::lanes::{Floats, Ints, Isa, Kernel, LANES, Mask, Simd};

/// A format of 32 values in `BYTES` bytes.
pub(crate) trait Direct<const BYTES: usize> {
    /// Encodes one block. Implementations are `#[inline(always)]`.
    fn encode<S: Simd>(values: &Values<'_, S>, block: &mut [u8; BYTES]);
}

/// Encodes finite values, whole blocks.
pub(crate) fn encode<F: Direct<BYTES>, const BYTES: usize>(x: &[f32], out: &mut [u8]) {
    encode_on::<F, BYTES>(Isa::detect(), x, out);
}

/// [`encode`] with a given instruction set.
pub(crate) fn encode_on<F: Direct<BYTES>, const BYTES: usize>(isa: Isa, x: &[f32], out: &mut [u8]) {
    isa.run(Encode::<F, BYTES> { x, out, format: PhantomData });
}

struct Encode<'a, F, const BYTES: usize> {
    x: &'a [f32],
    out: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: Direct<BYTES>, const BYTES: usize> Kernel for Encode<'_, F, BYTES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, block) in self.x.as_chunks().0.iter().zip(self.out.as_chunks_mut().0) {
            F::encode(&Values::load(s, x), block);
        }
    }
}

/// The values of a block: where they lie, and in lanes.
pub(crate) struct Values<'a, S: Simd> {
    s: S,
    x: &'a [f32; LEN],
    low: Floats<S>,
    high: Floats<S>,
}

impl<'a, S: Simd> Values<'a, S> {
    #[inline(always)]
    fn load(s: S, x: &'a [f32; LEN]) -> Self {
        let [low, high] = x.as_chunks::<LANES>().0 else { unreachable!("a block is two vectors") };
        Self { s, x, low: Floats::load(s, low), high: Floats::load(s, high) }
    }

    #[inline(always)]
    pub(crate) fn s(&self) -> S {
        self.s
    }

    #[inline(always)]
    pub(crate) fn splat(&self, v: f32) -> Floats<S> {
        Floats::splat(self.s, v)
    }

    #[inline(always)]
    pub(crate) fn splat_int(&self, v: i32) -> Ints<S> {
        Ints::splat(self.s, v)
    }

    /// The halves of the block.
    #[inline(always)]
    pub(crate) fn halves(&self) -> [Floats<S>; 2] {
        [self.low, self.high]
    }

    /// The largest magnitude.
    #[inline(always)]
    pub(crate) fn most(&self) -> f32 {
        self.low.abs().max(self.high.abs()).max_across()
    }

    /// The first value of the largest magnitude, +0 if all are zero.
    #[inline(always)]
    pub(crate) fn extreme(&self) -> f32 {
        let most = self.most();
        let lanes = self.splat(most);
        let found = self.first(self.low.abs().equal(lanes), self.high.abs().equal(lanes));
        if most == 0.0 { 0.0 } else { found }
    }

    /// The smallest and the largest value, of equal ones (zeros of either sign) the first.
    #[inline(always)]
    pub(crate) fn range(&self) -> (f32, f32) {
        let min = self.splat(self.low.min(self.high).min_across());
        let max = self.splat(self.low.max(self.high).max_across());
        let min = self.first(self.low.equal(min), self.high.equal(min));
        let max = self.first(self.low.equal(max), self.high.equal(max));
        (min, max)
    }

    /// The first of the values marked, of which there is one at least.
    #[inline(always)]
    fn first(&self, low: Mask<S>, high: Mask<S>) -> f32 {
        let marked = u32::from(low.bits()) | (u32::from(high.bits()) << LANES);
        self.x[marked.trailing_zeros() as usize % LEN]
    }
}

/// Codes of a block. Integer parts of values that are not negative, at most `top`.
#[inline(always)]
pub(crate) fn codes<S: Simd>(x: [Floats<S>; 2], top: Ints<S>) -> [Ints<S>; 2] {
    [x[0].truncate().min(top), x[1].truncate().min(top)]
}

/// Writes codes of four bits: byte `j` holds code `j` low, code `j + 16` high.
#[inline(always)]
pub(crate) fn put_nibbles<S: Simd>([low, high]: [Ints<S>; 2], out: &mut [u8]) {
    let high = high + high;
    let high = high + high;
    let high = high + high;
    let out = out.first_chunk_mut().expect("sixteen bytes of codes");
    (low + high + high).store_bytes(out);
}

/// Writes codes of five bits: the fifth bits (bit `j` is code `j`), then the low nibbles.
#[inline(always)]
pub(crate) fn put_fifths<S: Simd>(s: S, codes: [Ints<S>; 2], out: &mut [u8]) {
    let (fifth, nibble) = (Ints::splat(s, 16), Ints::splat(s, 15));
    let (low, high) = ((codes[0] & fifth).equal(fifth).bits(), (codes[1] & fifth).equal(fifth).bits());
    let (qh, qs) = out.split_at_mut(4);
    qh[..2].copy_from_slice(&low.to_le_bytes());
    qh[2..].copy_from_slice(&high.to_le_bytes());
    put_nibbles([codes[0] & nibble, codes[1] & nibble], qs);
}
