//! Keys that are made of stored values.

use crate::kv::KvFormat;
use crate::op::{Pairing, RopeParams};
use crate::tensor::TensorId;

/// How keys are made of stored values: `key = rope(weight · value)`, the value as it comes back from the cache, at the
/// position at which it is read. The arithmetic is that of [`crate::RmsNorm`]'s last multiplication and of
/// [`crate::Rope`], so where components are stored as they are the keys have the bits that those operations would have made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormedKeys {
    /// `head_dim` f32 values: the weights of the keys' norm; `None`: all ones.
    pub weight: Option<TensorId>,
    /// The keys' rotation.
    pub rope: RopeParams,
    /// Pairs that turn: the first ones. The angle of the others is nothing at any position, because their factor is huge.
    pub pairs: usize,
}

impl FormedKeys {
    /// How vectors of `head_dim` values are cut in a format, if they are: see [`Cut`].
    pub fn cut(&self, format: KvFormat, head_dim: usize) -> Option<Cut> {
        let Self { rope, pairs, .. } = *self;
        let block = 2 * pairs;
        let is_cut = Cut::BLOCKS.contains(&block) && block < head_dim && head_dim.is_multiple_of(block);
        if format.turbo().is_none() || !is_cut || pairs > rope.dims / 2 {
            return None;
        }
        let run = |start, step, len| Run { start, step, len };
        let half = rope.dims / 2;
        let runs = match rope.pairing {
            Pairing::Halves => [
                run(0, 1, pairs),
                run(half, 1, pairs),
                run(pairs, 1, half - pairs),
                run(half + pairs, 1, head_dim - half - pairs),
            ],
            Pairing::Adjacent => {
                [run(0, 2, pairs), run(1, 2, pairs), run(block, 1, head_dim - block), run(0, 1, 0)]
            }
        };
        Some(Cut { block, runs })
    }
}

/// A vector of which TurboQuant's blocks do not mix components that turn with others: the first block holds those, first
/// the first of every pair, then the second of every pair; the others follow. So of a score the part of all blocks but
/// the first is a dot product of codes with a query that is rotated once, whatever the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Components of a block: twice the pairs that turn.
    pub block: usize,
    /// Components in the order in which they are stored.
    runs: [Run; 4],
}

/// Components `start`, `start + step` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    step: usize,
    len: usize,
}

impl Cut {
    /// Sizes of blocks.
    pub const BLOCKS: [usize; 3] = [64, 128, 256];

    /// Components in the order in which they are stored.
    ///
    /// # Panics
    /// If a vector has another length than that which is cut.
    #[inline]
    pub fn sort(&self, from: &[f32], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "as many components");
        let mut to = to.iter_mut();
        for run in &self.runs {
            for (from, to) in from[run.start..].iter().step_by(run.step).take(run.len).zip(to.by_ref()) {
                *to = *from;
            }
        }
    }

    /// Undoes [`Cut::sort`].
    ///
    /// # Panics
    /// If a vector has another length than that which is cut.
    #[inline]
    pub fn unsort(&self, from: &[f32], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "as many components");
        let mut first = 0;
        for run in &self.runs {
            let from = &from[first..first + run.len];
            for (to, from) in to[run.start..].iter_mut().step_by(run.step).zip(from) {
                *to = *from;
            }
            first += run.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(dims: usize, pairing: Pairing, pairs: usize) -> FormedKeys {
        let (factors, yarn) = (None, None);
        let rope = RopeParams { dims, pairing, base: 1e6, freq_scale: 1.0, factors, yarn, magnitude: 1.0 };
        FormedKeys { weight: None, rope, pairs }
    }

    #[test]
    fn the_first_block_holds_the_components_that_turn() {
        let x: Vec<f32> = (0..512_u16).map(f32::from).collect();
        for (dims, pairing, pairs, head_dim) in [
            (512, Pairing::Halves, 64, 512),
            (512, Pairing::Adjacent, 64, 512),
            (256, Pairing::Halves, 128, 512),
            (64, Pairing::Halves, 32, 256),
        ] {
            let cut = keys(dims, pairing, pairs).cut(KvFormat::Tq4, head_dim).unwrap();
            let (mut sorted, mut back) = (vec![-1.0; head_dim], vec![-1.0; head_dim]);
            cut.sort(&x[..head_dim], &mut sorted);
            for i in 0..pairs {
                let (first, second) = match pairing {
                    Pairing::Halves => (i, i + dims / 2),
                    Pairing::Adjacent => (2 * i, 2 * i + 1),
                };
                assert_eq!((sorted[i], sorted[i + pairs]), (first as f32, second as f32));
            }
            assert!(sorted[2 * pairs..].is_sorted());
            cut.unsort(&sorted, &mut back);
            assert_eq!(back, x[..head_dim]);
        }
    }

    #[test]
    fn vectors_are_cut_where_blocks_can_be() {
        for (pairs, head_dim, block) in
            [(64, 512, Some(128)), (32, 64, None), (32, 128, Some(64)), (16, 128, None), (256, 512, None)]
        {
            let cut = keys(head_dim, Pairing::Halves, pairs).cut(KvFormat::Tq3, head_dim);
            assert_eq!(cut.map(|c| c.block), block, "{pairs} of {head_dim}");
        }
        assert_eq!(keys(512, Pairing::Halves, 64).cut(KvFormat::Q8_0, 512), None);
    }
}
