//! For backends: where the parts of a block lie, code tables, and how packed scales are unpacked.
//!
//! Each format's module names the byte offsets of its parts (`D`: scale, `DMIN` or `M`: scale of minimums or the
//! minimum, `SCALES`, `QS`: codes, `QH`: their upper bits) and the size of its block (`LEN` values, `BYTES`).

pub use crate::formats::{
    iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1,
    q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq1_0, tq2_0,
};

/// Levels of `iq4_nl` and `iq4_xs`: closer together near zero, as weights are.
pub const KVALUES_IQ4NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of E2M1, which makes them integers; [`e8m0_half`] takes the factor back.
pub const KVALUES_MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half the power of two that an E8M0 exponent stands for: `2^(e - 128)`, subnormal for `e < 2`. 255 means NaN
/// in the format's specification; like the reference, this takes it as one more power.
pub fn e8m0_half(e: u8) -> f32 {
    const SUBNORMAL_QUARTER: u32 = 0x0020_0000;
    let e = u32::from(e);
    f32::from_bits(if e < 2 { SUBNORMAL_QUARTER << e } else { (e - 1) << 23 })
}

/// Scale and minimum (6 bits each) of the `j`-th of the 8 groups of a `q4_k` or `q5_k` block. Groups 0..4 lie in
/// the low 6 bits of bytes `j` and `j + 4`; of groups 4..8 the low nibbles share byte `j + 4` and the upper bits
/// lie above those of groups 0..4.
///
/// # Panics
/// If `j` is not below 8.
#[inline]
pub fn k4_scale_min(j: usize, scales: &[u8; 12]) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 63, scales[j + 4] & 63);
    }
    let low = scales[j + 4];
    ((low & 15) | ((scales[j - 4] >> 6) << 4), (low >> 4) | ((scales[j] >> 6) << 4))
}

/// The 16 signed scales (-32..32) of a `q3_k` block: low nibbles in bytes 0..8, upper 2 bits in bytes 8..12.
#[inline]
pub fn q3k_scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let low = (packed[j % 8] >> (4 * (j / 8))) & 15;
        let high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
        (low | (high << 4)) as i8 - 32
    })
}

/// The 8 signed scales (-32..32) of an `iq4_xs` block from [`iq4_xs::SCALES_H`] and [`iq4_xs::SCALES_L`].
#[inline]
pub fn iq4xs_scales(high: u16, low: &[u8; 4]) -> [i8; 8] {
    std::array::from_fn(|j| {
        let low = (low[j / 2] >> (4 * (j % 2))) & 15;
        let high = ((high >> (2 * j)) & 3) as u8;
        (low | (high << 4)) as i8 - 32
    })
}
