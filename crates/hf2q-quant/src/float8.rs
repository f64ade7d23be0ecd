//! Floats of 8 bits, as checkpoints store weights and scales: every value is exact in single precision.
//!
//! | type | sign, exponent, mantissa | bias | largest | no number |
//! |---|---|---|---|---|
//! | E4M3 (`float8_e4m3fn`) | 1, 4, 3 | 7 | 448 | all exponent and mantissa bits set: NaN |
//! | E5M2 (`float8_e5m2`) | 1, 5, 2 | 15 | 57344 | exponent 31: infinity, or NaN if a mantissa bit is set |
//! | E8M0 (`float8_e8m0fnu`) | 0, 8, 0 | 127 | 2^127 | 255: NaN; there is no zero |

/// A type of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float8 {
    /// Weights: 4 exponent bits.
    E4M3,
    /// Weights of a wider range: 5 exponent bits.
    E5M2,
    /// Scales: powers of two.
    E8M0,
}

impl Float8 {
    /// The value of a code.
    #[inline]
    pub fn value(self, code: u8) -> f32 {
        f32::from_bits(self.table()[usize::from(code)])
    }

    /// The values of codes.
    ///
    /// # Panics
    /// If there are not as many values as codes.
    pub fn decode(self, codes: &[u8], values: &mut [f32]) {
        assert_eq!(codes.len(), values.len(), "a value for every code");
        let table = self.table();
        for (&code, value) in codes.iter().zip(values) {
            *value = f32::from_bits(table[usize::from(code)]);
        }
    }

    fn table(self) -> &'static [u32; 256] {
        match self {
            Self::E4M3 => &E4M3,
            Self::E5M2 => &E5M2,
            Self::E8M0 => &E8M0,
        }
    }
}

const NAN: u32 = 0x7fc0_0000;
const INFINITY: u32 = 0x7f80_0000;
const BIAS: u32 = 127;
const MANTISSA: u32 = 23;

static E4M3: [u32; 256] = table(3, 7);
static E5M2: [u32; 256] = table(2, 15);
static E8M0: [u32; 256] = powers_of_two();

/// Bits of the singles of all codes with a sign, `mantissa` bits and an exponent of this bias.
const fn table(mantissa: u32, bias: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        let sign = (code as u32 >> 7) << 31;
        table[code] = sign | magnitude(code as u32 & 0x7f, mantissa, bias);
        code += 1;
    }
    table
}

const fn magnitude(code: u32, mantissa: u32, bias: u32) -> u32 {
    let (exponent, fraction) = (code >> mantissa, code & ((1 << mantissa) - 1));
    let last = 0x7f >> mantissa;
    // Only the format with infinity gives up its last exponent.
    let has_infinity = mantissa == 2;
    if exponent == last && has_infinity {
        return if fraction == 0 { INFINITY } else { NAN };
    }
    if code == 0x7f {
        return NAN;
    }
    if code == 0 {
        return 0;
    }
    if exponent > 0 {
        return ((exponent + BIAS - bias) << MANTISSA) | (fraction << (MANTISSA - mantissa));
    }
    // Subnormal: the highest bit set becomes the one that singles leave out.
    let shift = fraction.leading_zeros() - (31 - mantissa);
    let fraction = (fraction << shift) & ((1 << mantissa) - 1);
    ((BIAS + 1 - bias - shift) << MANTISSA) | (fraction << (MANTISSA - mantissa))
}

/// Bits of the singles `2^(code - 127)`: the first is subnormal.
const fn powers_of_two() -> [u32; 256] {
    let mut table = [0; 256];
    table[0] = 1 << (MANTISSA - 1);
    let mut code = 1;
    while code < 255 {
        table[code] = (code as u32) << MANTISSA;
        code += 1;
    }
    table[255] = NAN;
    table
}
