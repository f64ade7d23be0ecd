//! Groups operations into waves whose members may run at the same time.

use std::collections::HashMap;

use crate::access::Access;
use crate::tensor::TensorId;

/// The wave of each operation. Operations of one wave never touch what another of them writes: read-after-write,
/// write-after-read and write-after-write pairs lie in ascending waves.
pub(crate) fn assign<'a>(accesses: impl Iterator<Item = &'a Access>) -> Vec<u32> {
    let mut last_write: HashMap<TensorId, u32> = HashMap::new();
    let mut last_read: HashMap<TensorId, u32> = HashMap::new();
    let mut waves = Vec::new();
    for access in accesses {
        let after_writes = access.reads.iter().chain(&access.writes).filter_map(|t| last_write.get(t));
        let after_reads = access.writes.iter().filter_map(|t| last_read.get(t));
        let wave = after_writes.chain(after_reads).map(|w| w + 1).max().unwrap_or(0);
        for &t in &access.reads {
            let w = last_read.entry(t).or_insert(wave);
            *w = (*w).max(wave);
        }
        for &t in &access.writes {
            last_write.insert(t, wave);
        }
        waves.push(wave);
    }
    waves
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn access(reads: &[u32], writes: &[u32]) -> Access {
        let ids = |x: &[u32]| x.iter().map(|&t| TensorId(t)).collect();
        Access { reads: ids(reads), writes: ids(writes) }
    }

    #[test]
    fn independent_projections_share_a_wave() {
        let all = [access(&[0], &[2]), access(&[2], &[3]), access(&[2], &[4]), access(&[2], &[5])];
        assert_eq!(assign(all.iter()), [0, 1, 1, 1]);
    }

    #[test]
    fn two_stores_to_one_cache_are_ordered() {
        let all = [access(&[0, 9], &[9]), access(&[1, 9], &[9])];
        assert_eq!(assign(all.iter()), [0, 1]);
    }

    proptest! {
        #[test]
        fn no_wave_has_a_hazard(ops in prop::collection::vec((prop::collection::vec(0..12_u32, 0..3), 0..12_u32), 1..40)) {
            let all: Vec<Access> = ops.iter().map(|(r, w)| access(r, &[*w])).collect();
            let waves = assign(all.iter());
            for (i, a) in all.iter().enumerate() {
                for (j, b) in all.iter().enumerate().skip(i + 1) {
                    let hazard = a.writes.iter().any(|w| b.reads.contains(w) || b.writes.contains(w))
                        || a.reads.iter().any(|r| b.writes.contains(r));
                    prop_assert!(!hazard || waves[i] < waves[j], "operations {} and {}", i, j);
                }
            }
        }
    }
}
