//! Blocks that the first lattice in question gives back exactly: nearly all of a tensor that has been trained for
//! `q4_0`. Compiled for each instruction set; every other block is left to the search.

use super::{
    INTEGERS_ONLY, LANES, MOST_CODE, NEGATIVE, TOLERANCE, interval, least_squares, nearest_integer, round,
    search,
};
use crate::formats::q4_0::{BYTES, D, LEN, LIMIT, QS};
use crate::half::{f16_to_f32, f32_to_f16};
use crate::lanes::{Kernel, Simd, dispatch};

/// Encodes blocks. Returns how many are exact.
pub(super) fn quantize(src: &[f32], dst: &mut [u8]) -> u64 {
    dispatch(Encode { src, dst })
}

struct Encode<'a> {
    src: &'a [f32],
    dst: &'a mut [u8],
}

impl Kernel for Encode<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> u64 {
        let mut exact = 0;
        for (x, out) in self.src.as_chunks().0.iter().zip(self.dst.as_chunks_mut().0) {
            exact += u64::from(quantize_block(x, out) || search::quantize_block(x, out));
        }
        exact
    }
}

/// Returns false, with anything in `out`, if the block needs the search.
#[inline(always)]
fn quantize_block(x: &[f32; LEN], out: &mut [u8; BYTES]) -> bool {
    let (mut magnitudes, mut values) = ([0.0; LEN], [0.0; LEN]);
    let mut most = 0;
    for i in 0..LEN {
        magnitudes[i] = x[i].abs();
        values[i] = round(magnitudes[i]);
        most = (values[i].to_bits() as i32).max(most);
    }
    let most = f32::from_bits(most as u32);
    if most == 0.0 || most >= LIMIT || (1.0 / most).is_infinite() {
        return false;
    }
    // Where several lattices hold the block, all are exact; training mostly uses the outer codes.
    for k in (1..=MOST_CODE).rev() {
        let mut codes = [0.0; LEN];
        if divide(&values, f32::from(k) / most, &mut codes) {
            let best = least_squares(&magnitudes, &codes);
            let mut half = f32_to_f16(best);
            if !equal(&values, &codes, f16_to_f32(half)) {
                half = f32_to_f16(within_bounds(&values, &codes, best));
                if !equal(&values, &codes, f16_to_f32(half)) {
                    return false;
                }
            }
            return put(x, &codes, half, out);
        }
    }
    false
}

/// Values in steps; false as soon as some are too far from integers.
#[inline(always)]
fn divide(values: &[f32; LEN], inverse: f32, codes: &mut [f32; LEN]) -> bool {
    for (values, codes) in values.as_chunks::<LANES>().0.iter().zip(codes.as_chunks_mut::<LANES>().0) {
        let mut beyond = 0;
        for i in 0..LANES {
            let steps = values[i] * inverse;
            codes[i] = nearest_integer(steps);
            beyond |= u32::from((steps - codes[i]).abs() > codes[i] * TOLERANCE);
        }
        if beyond != 0 {
            return false;
        }
    }
    true
}

/// The nearest step whose multiples round to the values.
#[inline(always)]
fn within_bounds(values: &[f32; LEN], codes: &[f32; LEN], best: f32) -> f32 {
    let (mut low, mut high) = ([0.0; LANES], [f32::INFINITY; LANES]);
    for (values, codes) in values.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            let (below, above) = interval(values[i], codes[i]);
            low[i] = if below > low[i] { below } else { low[i] };
            high[i] = if above < high[i] { above } else { high[i] };
        }
    }
    let mut step = best;
    for low in low {
        step = step.max(low);
    }
    for high in high {
        step = step.min(high);
    }
    step
}

/// Whether the codes decode to the values.
#[inline(always)]
fn equal(values: &[f32; LEN], codes: &[f32; LEN], scale: f32) -> bool {
    let mut differing = 0;
    for i in 0..LEN {
        differing |= round(codes[i] * scale).to_bits() ^ values[i].to_bits();
    }
    differing == 0 && scale.is_finite()
}

/// Writes magnitudes in steps with the signs of the values. Returns false if 8 steps have both signs.
#[inline(always)]
fn put(x: &[f32; LEN], codes: &[f32; LEN], half: u16, out: &mut [u8; BYTES]) -> bool {
    const SIGN: u32 = 1 << 31;
    let (mut plus, mut minus) = (0, 0);
    for i in 0..LEN {
        let extreme = if codes[i] == f32::from(MOST_CODE) { SIGN } else { 0 };
        plus |= extreme & !x[i].to_bits();
        minus |= extreme & x[i].to_bits();
    }
    let mut nibbles = [0; LEN];
    for i in 0..LEN {
        // Eight steps are code -8, so a positive extreme makes the scale negative.
        let code = f32::from_bits(codes[i].to_bits() | ((x[i].to_bits() & SIGN) ^ plus));
        nibbles[i] = (code + 8.0 + INTEGERS_ONLY).to_bits() as u8;
    }
    let half = if plus != 0 { half | NEGATIVE } else { half };
    out[D..D + 2].copy_from_slice(&half.to_le_bytes());
    for (i, byte) in out[QS].iter_mut().enumerate() {
        *byte = nibbles[i] | (nibbles[i + LEN / 2] << 4);
    }
    plus & minus == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{bf16_to_f32, f32_to_bf16};
    use crate::lanes::Isa;

    #[test]
    fn instruction_sets_agree() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let mut src = Vec::new();
        for block in 0..2000 {
            let (step, codes) = (0.003 + 0.01 * next(), [16.0, 15.0, 9.0, 40.0][block % 4]);
            for _ in 0..LEN {
                let code = (next() * codes - codes / 2.0).floor();
                src.push(bf16_to_f32(f32_to_bf16(code * step)));
            }
        }
        let encode = |isa: Isa| {
            let mut dst = vec![0; src.len() / LEN * BYTES];
            let exact = isa.run(Encode { src: &src, dst: &mut dst });
            (exact, dst)
        };
        let expected = encode(Isa::Portable);
        assert!((1000..1900).contains(&expected.0), "{}: all paths are taken", expected.0);
        for isa in Isa::available() {
            assert!(encode(isa) == expected, "{isa:?}");
        }
    }
}
