//! Sixteen blocks side by side, and the last step of all encoders: codes under scales that are final.

use std::marker::PhantomData;

use crate::lanes::{Floats, Ints, Isa, Kernel, LANES, Simd, side_by_side};
use crate::search::Groups;

use super::LEN;

/// One to sixteen blocks. Lanes beyond them repeat the last.
pub(crate) struct Batch<'a> {
    /// The blocks.
    pub(crate) rows: &'a [[f32; LEN]],
    /// Value `j` of every block.
    pub(crate) x: &'a Groups<LEN>,
    /// The importance of every value.
    pub(crate) importance: Option<&'a Groups<LEN>>,
}

/// A format of blocks of 256 values in `BYTES` bytes.
pub(crate) trait SuperBlock<const BYTES: usize> {
    /// Encodes the blocks of a batch. A block whose values are too large for the format gets a scale that is not
    /// finite. Implementations are `#[inline(always)]`.
    fn encode<S: Simd>(s: S, batch: &Batch<'_>, blocks: &mut [[u8; BYTES]]);
}

/// Encodes finite values, whole blocks; with `importance`, whole rows of as many columns. Blocks without any
/// importance, whose values the reference would lose, are encoded as if there were none.
pub(crate) fn encode<F: SuperBlock<BYTES>, const BYTES: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    encode_on::<F, BYTES>(Isa::detect(), x, importance, out);
}

/// [`encode`] with a given instruction set.
pub(crate) fn encode_on<F: SuperBlock<BYTES>, const BYTES: usize>(
    isa: Isa,
    x: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let (x, blocks) = (x.as_chunks().0, out.as_chunks_mut().0);
    let importance = importance.map(|weights| weights.as_chunks().0);
    isa.run(Encode::<F, BYTES> { x, importance, blocks, format: PhantomData });
}

struct Encode<'a, F, const BYTES: usize> {
    x: &'a [[f32; LEN]],
    /// The blocks of one row; they repeat.
    importance: Option<&'a [[f32; LEN]]>,
    blocks: &'a mut [[u8; BYTES]],
    format: PhantomData<F>,
}

impl<F: SuperBlock<BYTES>, const BYTES: usize> Kernel for Encode<'_, F, BYTES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (mut x, mut lanes) = ([[0.0; LANES]; LEN], [[0.0; LANES]; LEN]);
        let batches = self.x.chunks(LANES).zip(self.blocks.chunks_mut(LANES));
        for (number, (rows, blocks)) in batches.enumerate() {
            let first = number * LANES;
            side_by_side(s, rows, (0, rows.len()), &mut x);
            let Some(importance) = self.importance else {
                encode_batch::<S, F, BYTES>(s, Batch { rows, x: &x, importance: None }, blocks);
                continue;
            };
            side_by_side(s, importance, (first, rows.len()), &mut lanes);
            encode_batch::<S, F, BYTES>(s, Batch { rows, x: &x, importance: Some(&lanes) }, blocks);
            for (at, (row, block)) in rows.iter().zip(blocks).enumerate() {
                if importance[(first + at) % importance.len()].iter().all(|&w| w == 0.0) {
                    let (rows, block) = (std::slice::from_ref(row), std::slice::from_mut(block));
                    side_by_side(s, rows, (0, 1), &mut x);
                    encode_batch::<S, F, BYTES>(s, Batch { rows, x: &x, importance: None }, block);
                }
            }
        }
    }
}

#[inline(always)]
fn encode_batch<S: Simd, F: SuperBlock<BYTES>, const BYTES: usize>(
    s: S,
    batch: Batch<'_>,
    blocks: &mut [[u8; BYTES]],
) {
    s.outline(EncodeBatch::<F, BYTES> { batch, blocks, format: PhantomData });
}

/// One batch, so that an encoder is compiled once.
struct EncodeBatch<'a, F, const BYTES: usize> {
    batch: Batch<'a>,
    blocks: &'a mut [[u8; BYTES]],
    format: PhantomData<F>,
}

impl<F: SuperBlock<BYTES>, const BYTES: usize> Kernel for EncodeBatch<'_, F, BYTES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        F::encode(s, &self.batch, self.blocks);
    }
}

/// Final scales of a batch, `GROUPS` to a block, and what codes are where a scale is zero.
pub(crate) struct Grid<const GROUPS: usize> {
    /// What a step of the code is worth.
    pub(crate) scale: [[f32; LANES]; GROUPS],
    /// What is added to a value before it is divided by the scale.
    pub(crate) shift: [[f32; LANES]; GROUPS],
    /// Codes of groups with a scale of zero. What they are makes no difference to the values, but the reference
    /// leaves those of its search there.
    pub(crate) kept: [[u8; LANES]; LEN],
}

impl<const GROUPS: usize> Grid<GROUPS> {
    /// All scales zero.
    pub(crate) fn new() -> Self {
        Self { scale: [[0.0; LANES]; GROUPS], shift: [[0.0; LANES]; GROUPS], kept: [[0; LANES]; LEN] }
    }

    /// Whether codes of a group must be kept in some block.
    pub(crate) fn keeps(&self, group: usize) -> bool {
        self.scale[group].contains(&0.0)
    }

    /// The codes of a block, counted from `low`, the least.
    #[inline(always)]
    pub(crate) fn codes<S: Simd>(
        &self,
        s: S,
        batch: &Batch<'_>,
        lane: usize,
        (low, high): (i32, i32),
    ) -> [u8; LEN] {
        let mut codes = [0; LEN];
        let (low, high) = (Ints::splat(s, low), Ints::splat(s, high));
        let parts = batch.rows[lane].as_chunks().0.iter().zip(codes.as_chunks_mut().0);
        for (part, (x, codes)) in parts.enumerate() {
            let group = part * GROUPS * LANES / LEN;
            let scale = self.scale[group][lane];
            if scale == 0.0 {
                for (code, kept) in codes.iter_mut().zip(&self.kept[part * LANES..]) {
                    *code = kept[lane];
                }
                continue;
            }
            let (scale, shift) = (Floats::splat(s, scale), Floats::splat(s, self.shift[group][lane]));
            let code = ((Floats::load(s, x) + shift) / scale).nearest_int().min(high).max(low);
            (code - low).store_bytes(codes);
        }
        codes
    }
}

/// `share` times the mean of the squares of each block.
#[inline(always)]
pub(crate) fn mean_squares<S: Simd>(s: S, x: &Groups<LEN>, share: f32) -> Floats<S> {
    let mut sum = Floats::splat(s, 0.0);
    for x in x {
        let x = Floats::load(s, x);
        sum = sum + x * x;
    }
    Floats::splat(s, share) * sum / Floats::splat(s, LEN as f32)
}

/// The weights of values with importance, and their sums.
#[inline(always)]
pub(crate) fn weigh<S: Simd, const SIZE: usize>(
    s: S,
    x: &Groups<SIZE>,
    (importance, squares): (&Groups<SIZE>, Floats<S>),
    weights: &mut Groups<SIZE>,
) -> Floats<S> {
    let mut sum = Floats::splat(s, 0.0);
    for ((x, importance), weight) in x.iter().zip(importance).zip(weights) {
        let x = Floats::load(s, x);
        let w = Floats::load(s, importance) * (squares + x * x).sqrt();
        sum = sum + w;
        w.store(weight);
    }
    sum
}
