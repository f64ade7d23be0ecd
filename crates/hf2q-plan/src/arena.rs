//! Places activations in one arena; tensors whose lifetimes meet never overlap.

use crate::tensor::TensorId;

/// Byte alignment of every activation: a cache line, and an AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// A tensor to place. It is live from wave `first` to wave `last`, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) tensor: TensorId,
    pub(crate) bytes: usize,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Where the activations of a plan lie, for a given number of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Byte offset by tensor index; `None` for weights, caches and unused tensors.
    pub offsets: Vec<Option<usize>>,
    /// Bytes the arena needs.
    pub bytes: usize,
}

/// First fit, largest first.
pub(crate) fn place(wanted: &[Lifetime], tensors: usize) -> Arena {
    let size = |w: &Lifetime| w.bytes.next_multiple_of(ALIGNMENT);
    let mut order: Vec<&Lifetime> = wanted.iter().collect();
    order.sort_by_key(|w| std::cmp::Reverse(w.bytes));
    let mut offsets: Vec<Option<usize>> = vec![None; tensors];
    let mut placed: Vec<(&Lifetime, usize)> = Vec::new();
    for w in order {
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|(p, _)| p.first <= w.last && w.first <= p.last)
            .map(|(p, at)| (*at, at + size(p)))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if at + size(w) <= start {
                break;
            }
            at = at.max(end);
        }
        offsets[w.tensor.index()] = Some(at);
        placed.push((w, at));
    }
    let bytes = placed.iter().map(|(w, at)| at + size(w)).max().unwrap_or(0);
    Arena { offsets, bytes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tensors_that_never_meet_share_space() {
        let a = Lifetime { tensor: TensorId(0), bytes: 200, first: 0, last: 1 };
        let b = Lifetime { tensor: TensorId(1), bytes: 256, first: 2, last: 3 };
        assert_eq!(place(&[a, b], 2), Arena { offsets: vec![Some(0), Some(0)], bytes: 256 });
    }

    proptest! {
        #[test]
        fn live_tensors_never_overlap(sizes in prop::collection::vec((1..2000_usize, 0..20_u32, 0..6_u32), 1..30)) {
            let wanted: Vec<Lifetime> = sizes.iter().zip(0..).map(|(&(bytes, first, len), t)| {
                Lifetime { tensor: TensorId(t), bytes, first, last: first + len }
            }).collect();
            let arena = place(&wanted, wanted.len());
            for (i, a) in wanted.iter().enumerate() {
                for (j, b) in wanted.iter().enumerate().skip(i + 1) {
                    let meet = a.first <= b.last && b.first <= a.last;
                    let (x, y) = (arena.offsets[i].unwrap(), arena.offsets[j].unwrap());
                    prop_assert!(!meet || x + a.bytes <= y || y + b.bytes <= x, "{} and {}", i, j);
                    prop_assert!(x % ALIGNMENT == 0 && x + a.bytes <= arena.bytes);
                }
            }
        }
    }
}
