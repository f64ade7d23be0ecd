//! Lloyd-Max quantizers of the normal distribution (Lloyd 1957, Max 1960): every level is the mean of the values it
//! stands for, every threshold lies halfway between two levels. They are symmetric, so the positive half is kept.
//!
//! The constants are computed to 30 digits by `tools/kv/codebooks.py`.

use super::Turbo;

/// Positive levels of 2 bits, ascending.
pub const LEVELS_2: [f32; 2] = [0.45278004, 1.5104176];

/// Positive levels of 3 bits, ascending.
pub const LEVELS_3: [f32; 4] = [0.24509418, 0.7560053, 1.3439093, 2.1519456];

/// Positive levels of 4 bits, ascending.
pub const LEVELS_4: [f32; 8] =
    [0.12839504, 0.3880483, 0.65675914, 0.94234043, 1.2562312, 1.6180464, 2.0690172, 2.7325895];

/// Positive levels of 5 bits, ascending.
pub const LEVELS_5: [f32; 16] = [
    0.06588966, 0.19805183, 0.3313783, 0.4666995, 0.6049336, 0.7471357, 0.8945651, 1.0487833, 1.2118044,
    1.3863404, 1.576228, 1.7872332, 2.0287285, 2.3177395, 2.6911197, 3.2607324,
];

/// Positive levels of 6 bits, ascending.
pub const LEVELS_6: [f32; 32] = [
    0.033409506,
    0.10027829,
    0.1672969,
    0.23456699,
    0.30219284,
    0.37028265,
    0.43894967,
    0.5083138,
    0.578503,
    0.6496556,
    0.7219219,
    0.7954677,
    0.8704766,
    0.94715494,
    1.0257363,
    1.1064882,
    1.1897202,
    1.2757945,
    1.365141,
    1.4582764,
    1.5558312,
    1.6585889,
    1.7675419,
    1.8839773,
    2.0096111,
    2.1468103,
    2.2989812,
    2.471305,
    2.6722739,
    2.9174068,
    3.240437,
    3.7441013,
];

/// Positive levels of 8 bits, ascending.
pub const LEVELS_8: [f32; 128] = [
    0.008446193,
    0.025339384,
    0.042234983,
    0.059134603,
    0.07603986,
    0.092952356,
    0.10987372,
    0.12680559,
    0.14374956,
    0.16070732,
    0.17768049,
    0.19467075,
    0.21167976,
    0.2287092,
    0.24576078,
    0.26283622,
    0.27993724,
    0.2970656,
    0.31422305,
    0.3314114,
    0.34863243,
    0.365888,
    0.38317996,
    0.40051022,
    0.41788065,
    0.4352932,
    0.45274988,
    0.47025266,
    0.4878036,
    0.5054048,
    0.5230583,
    0.5407663,
    0.55853105,
    0.5763547,
    0.5942396,
    0.6121881,
    0.6302026,
    0.6482855,
    0.6664394,
    0.68466675,
    0.70297027,
    0.72135264,
    0.7398166,
    0.75836504,
    0.77700084,
    0.795727,
    0.8145467,
    0.833463,
    0.8524793,
    0.8715989,
    0.8908253,
    0.91016203,
    0.92961293,
    0.9491818,
    0.9688726,
    0.98868936,
    1.0086365,
    1.0287182,
    1.0489392,
    1.0693042,
    1.0898181,
    1.110486,
    1.1313132,
    1.1523054,
    1.1734682,
    1.1948076,
    1.2163299,
    1.2380418,
    1.2599499,
    1.2820615,
    1.304384,
    1.3269253,
    1.3496937,
    1.3726976,
    1.3959464,
    1.4194493,
    1.4432166,
    1.4672587,
    1.491587,
    1.5162132,
    1.5411496,
    1.5664098,
    1.5920075,
    1.6179578,
    1.6442765,
    1.6709803,
    1.6980875,
    1.7256169,
    1.7535894,
    1.7820269,
    1.8109531,
    1.8403933,
    1.8703752,
    1.900928,
    1.9320842,
    1.9638784,
    1.9963485,
    2.0295358,
    2.0634851,
    2.0982466,
    2.1338742,
    2.1704283,
    2.2079754,
    2.24659,
    2.2863545,
    2.3273618,
    2.3697171,
    2.4135387,
    2.4589622,
    2.5061426,
    2.5552595,
    2.6065214,
    2.660174,
    2.7165077,
    2.7758706,
    2.8386858,
    2.905473,
    2.9768822,
    3.053742,
    3.1371326,
    3.2285001,
    3.3298485,
    3.4440718,
    3.575588,
    3.7316663,
    3.9256377,
    4.1865954,
    4.6035357,
];

/// Thresholds between neighbouring levels.
const fn thresholds<const LEVELS: usize, const N: usize>(levels: &[f32; LEVELS]) -> [f32; N] {
    assert!(N + 1 == LEVELS, "a threshold between each two levels");
    let mut out = [0.0; N];
    let mut i = 0;
    while i < N {
        out[i] = (levels[i] + levels[i + 1]) / 2.0;
        i += 1;
    }
    out
}

/// The value of every code: the highest bit is the sign, the rest the index of the level.
const fn values<const LEVELS: usize, const N: usize>(levels: &[f32; LEVELS]) -> [f32; N] {
    assert!(N == 2 * LEVELS, "every level has two signs");
    let mut out = [0.0; N];
    let mut i = 0;
    while i < LEVELS {
        out[i] = levels[i];
        out[LEVELS + i] = -levels[i];
        i += 1;
    }
    out
}

macro_rules! tables {
    ($($levels:ident $count:literal $thresholds:ident $values:ident;)*) => {$(
        static $thresholds: [f32; $count - 1] = thresholds(&$levels);
        static $values: [f32; 2 * $count] = values(&$levels);
    )*};
}

tables! {
    LEVELS_2 2 THRESHOLDS_2 VALUES_2;
    LEVELS_3 4 THRESHOLDS_3 VALUES_3;
    LEVELS_4 8 THRESHOLDS_4 VALUES_4;
    LEVELS_5 16 THRESHOLDS_5 VALUES_5;
    LEVELS_6 32 THRESHOLDS_6 VALUES_6;
    LEVELS_8 128 THRESHOLDS_8 VALUES_8;
}

impl Turbo {
    /// Positive levels in ascending order, `2^(bits - 1)` of them.
    #[inline(always)]
    pub fn levels(self) -> &'static [f32] {
        let values = self.values();
        &values[..values.len() / 2]
    }

    /// The value of every code; the highest bit is the sign.
    #[inline(always)]
    pub fn values(self) -> &'static [f32] {
        match self {
            Self::Tq2 => &VALUES_2,
            Self::Tq3 => &VALUES_3,
            Self::Tq4 => &VALUES_4,
            Self::Tq5 => &VALUES_5,
            Self::Tq6 => &VALUES_6,
            Self::Tq8 => &VALUES_8,
        }
    }

    /// Borders between the positive levels; a value on one belongs to the upper level.
    #[inline(always)]
    pub fn thresholds(self) -> &'static [f32] {
        match self {
            Self::Tq2 => &THRESHOLDS_2,
            Self::Tq3 => &THRESHOLDS_3,
            Self::Tq4 => &THRESHOLDS_4,
            Self::Tq5 => &THRESHOLDS_5,
            Self::Tq6 => &THRESHOLDS_6,
            Self::Tq8 => &THRESHOLDS_8,
        }
    }

    /// Mean square error of the quantizer on normal values of variance 1.
    pub fn error(self) -> f64 {
        match self {
            Self::Tq2 => 0.117_481_847_8,     // error of 2 bits
            Self::Tq3 => 0.034_547_760_79,    // error of 3 bits
            Self::Tq4 => 0.009_501_008_008,   // error of 4 bits
            Self::Tq5 => 0.002_504_668_356,   // error of 5 bits
            Self::Tq6 => 0.000_644_239_665_3, // error of 6 bits
            Self::Tq8 => 4.118_508_287e-5,    // error of 8 bits
        }
    }
}
