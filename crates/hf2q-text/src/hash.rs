//! A hash index over byte strings that are stored elsewhere.

use std::hash::{BuildHasher, Hasher, RandomState};

/// An odd constant with well mixed bits.
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Open addressing with linear probing. A slot holds 32 bits of the hash and an index plus one, so that most
/// probes are decided without touching the text. The seed differs per process: a file cannot be crafted to collide.
pub(crate) struct Index {
    slots: Vec<u64>,
    seed: u64,
}

impl Index {
    /// An index for up to `len` entries, at most half full.
    pub(crate) fn with_capacity(len: usize) -> Self {
        let slots = (len * 2).next_power_of_two().max(8);
        Self { slots: vec![0; slots], seed: RandomState::new().build_hasher().finish() }
    }

    /// The stored index whose text is `key`. `text` gives the text of a stored index.
    pub(crate) fn get<'a>(&self, key: &[u8], text: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        let hash = self.hash(key);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let index = slot as u32 - 1;
            if slot >> 32 == hash >> 32 && text(index) == key {
                return Some(index);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Stores `index` under `key` unless the key is there already, and says whether it did. The caller stays within
    /// the capacity.
    pub(crate) fn insert<'a>(&mut self, key: &[u8], index: u32, text: impl Fn(u32) -> &'a [u8]) -> bool {
        let hash = self.hash(key);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                self.slots[at] = (hash >> 32 << 32) | u64::from(index + 1);
                return true;
            }
            if slot >> 32 == hash >> 32 && text(slot as u32 - 1) == key {
                return false;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut h = self.seed ^ (key.len() as u64).wrapping_mul(FACTOR);
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            h = fold(h ^ u64::from_le_bytes(*word));
        }
        fold(h ^ short(rest))
    }
}

/// Multiplies and folds the product's halves, so that each bit depends on all.
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

/// Up to 7 bytes as a word; distinct bytes of one length give distinct words.
fn short(bytes: &[u8]) -> u64 {
    let at = |i: usize| u64::from(bytes[i]);
    let four = |i: usize| bytes[i..].first_chunk().map_or(0, |b| u64::from(u32::from_le_bytes(*b)));
    match bytes.len() {
        0 => 0,
        n @ 1..4 => at(0) | at(n / 2) << 8 | at(n - 1) << 16,
        n => four(0) | four(n - 4) << 32,
    }
}
