//! Philox 4x32-10, a counter-based generator (Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as
//! easy as 1, 2, 3").

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let product = |i: usize, c: u32| u64::from(MULTIPLIERS[i]) * u64::from(c);
        let (a, b) = (product(0, counter[0]), product(1, counter[2]));
        counter = [high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn high(x: u64) -> u32 {
    (x >> 32) as u32
}

fn low(x: u64) -> u32 {
    (x & u64::from(u32::MAX)) as u32
}

/// A number in [0, 1), the same for the same three keys.
pub(super) fn uniform(seed: u64, sequence: u64, position: u64) -> f64 {
    let counter = [low(position), high(position), low(sequence), high(sequence)];
    let random = philox(counter, [low(seed), high(seed)]);
    let bits = (u64::from(random[0]) << 32 | u64::from(random[1])) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    // Known answers of the authors' library, Random123.
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn keys_matter_and_the_mean_is_a_half() {
        let mean = (0..10_000).map(|p| uniform(7, 1, p)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_ne!(uniform(7, 1, 3).to_bits(), uniform(7, 2, 3).to_bits());
        assert_ne!(uniform(7, 1, 3).to_bits(), uniform(8, 1, 3).to_bits());
    }
}
