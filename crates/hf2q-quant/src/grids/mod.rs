//! The code words of the IQ formats: a code stands for four or eight magnitudes at once, those of the word with
//! its number.

mod bits;

/// Codes of 8 bits for eight values.
pub(crate) static IQ2_XXS: [[i8; 8]; 256] = expand(&bits::IQ2_XXS, IQ2_LEVELS);
/// Codes of 9 bits for eight values.
pub(crate) static IQ2_XS: [[i8; 8]; 512] = expand(&bits::IQ2_XS, IQ2_LEVELS);
/// Codes of 10 bits for eight values.
pub(crate) static IQ2_S: [[i8; 8]; 1024] = expand(&bits::IQ2_S, IQ2_LEVELS);
/// Codes of 8 bits for four values.
pub(crate) static IQ3_XXS: [[i8; 4]; 256] = expand(&bits::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
/// Codes of 9 bits for four values.
pub(crate) static IQ3_S: [[i8; 4]; 512] = expand(&bits::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);
/// Codes of 11 bits for eight values, of `iq1_s` and `iq1_m`. Signs are part of the words.
pub(crate) static IQ1: [[i8; 8]; 2048] = expand(&bits::IQ1_S, [-1, 0, 1]);

const IQ2_LEVELS: [i8; 3] = [8, 25, 43];

/// Words in the order of their numbers, of which the first digit is the least significant.
const fn expand<const WORDS: usize, const DIGITS: usize, const PARTS: usize, const LEVELS: usize>(
    bits: &[u64; PARTS],
    levels: [i8; LEVELS],
) -> [[i8; DIGITS]; WORDS] {
    let mut words = [[0; DIGITS]; WORDS];
    let (mut count, mut number) = (0, 0);
    while number < PARTS * 64 {
        if bits[number / 64] >> (number % 64) & 1 == 1 {
            let (mut rest, mut digit) = (number, 0);
            while digit < DIGITS {
                words[count][digit] = levels[rest % LEVELS];
                rest /= LEVELS;
                digit += 1;
            }
            count += 1;
        }
        number += 1;
    }
    assert!(count == WORDS);
    words
}

/// Signs of eight values from seven stored bits: bit `j` belongs to value `j`, and the number of signs is even.
#[inline]
pub(crate) fn even_signs(stored: u32) -> u8 {
    let stored = (stored & 127) as u8;
    stored | ((stored.count_ones() as u8 & 1) << 7)
}

/// Decodes a word: magnitudes times a scale, negative where bit `j` of the signs is set.
#[inline]
pub(crate) fn decode<const DIGITS: usize>(word: &[i8; DIGITS], scale: f32, signs: u8, out: &mut [f32]) {
    for (j, (out, &magnitude)) in out.iter_mut().zip(word).enumerate() {
        let sign = if signs >> j & 1 == 1 { -1.0 } else { 1.0 };
        *out = scale * f32::from(magnitude) * sign;
    }
}
