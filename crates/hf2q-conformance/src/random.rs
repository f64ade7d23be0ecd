//! Numbers that a seed determines on every machine: SplitMix64 (Steele et al. 2014).

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Streams of other names or seeds are unrelated (FNV-1a of the name).
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.bits() >> 56) as u8
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Uniform in -1 .. 1.
    pub(crate) fn symmetric(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    /// Near a normal distribution of variance 1: the sum of four uniform numbers of 16 bits.
    pub(crate) fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        (sum as f32 - 131_070.0) / 37_837.2
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
