//! Lanes against scalar code, on every instruction set, with values that no model should have.

mod scalar;

use proptest::prelude::*;

use super::{iq4_nl, iq4_xs, mxfp4, q4_0, q4_1, q5_0, q5_1, q8_0};
use crate::direct::{self, Direct};
use crate::lanes::{Floats, Isa, Kernel, LANES, Simd};
use crate::super_block::tests::{importance, rows};
use crate::weighted::{self, Weighted};

/// Blocks that are not marked as beyond the format must be equal, and the marks must be.
fn compare(found: &[u8], expected: &[u8], (bytes, scales): (usize, &[usize])) -> Result<(), TestCaseError> {
    let is_sound = |block: &[u8]| {
        scales.iter().all(|&at| u16::from_le_bytes([block[at], block[at + 1]]) & 0x7c00 != 0x7c00)
    };
    prop_assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.chunks(bytes).zip(expected.chunks(bytes)).enumerate() {
        prop_assert_eq!(is_sound(found), is_sound(expected), "block {}", index);
        if is_sound(found) {
            prop_assert_eq!(found, expected, "block {}", index);
        }
    }
    Ok(())
}

fn check_direct<F: Direct<BYTES>, const BYTES: usize>(
    x: &[f32],
    scalar: impl Fn(&[f32; 32], &mut [u8; BYTES]),
    scales: &[usize],
) -> Result<(), TestCaseError> {
    let mut expected = vec![0; x.len() / 32 * BYTES];
    for (x, block) in x.as_chunks().0.iter().zip(expected.as_chunks_mut().0) {
        scalar(x, block);
    }
    for isa in Isa::available() {
        let mut found = vec![0; expected.len()];
        direct::encode_on::<F, BYTES>(isa, x, &mut found);
        compare(&found, &expected, (BYTES, scales))?;
    }
    Ok(())
}

fn check_weighted<F: Weighted<BYTES>, const BYTES: usize>(
    (x, importance): (&[f32], &[f32]),
    scalar: impl Fn(&[f32], &[f32]) -> Vec<u8>,
    scales: &[usize],
) -> Result<(), TestCaseError> {
    let expected: Vec<u8> = x.chunks(importance.len()).flat_map(|x| scalar(x, importance)).collect();
    for isa in Isa::available() {
        let mut found = vec![0; expected.len()];
        weighted::encode_on::<F, BYTES>(isa, (x, importance), &mut found);
        compare(&found, &expected, (BYTES, scales))?;
    }
    Ok(())
}

fn check_levels(x: &[f32], importance: Option<&[f32]>) -> Result<(), TestCaseError> {
    let (small, large) = (scalar::iq4_nl(x, importance), scalar::iq4_xs(x, importance));
    for isa in Isa::available() {
        let mut found = vec![0; small.len()];
        iq4_nl::encode_on(isa, (x, importance), &mut found);
        compare(&found, &small, (iq4_nl::BYTES, &[iq4_nl::D]))?;
        let mut found = vec![0; large.len()];
        iq4_xs::encode_on(isa, (x, importance), &mut found);
        compare(&found, &large, (iq4_xs::BYTES, &[iq4_xs::D]))?;
    }
    Ok(())
}

/// What the dispatch lets through.
fn below(limit: f32, x: &[f32]) -> Vec<f32> {
    x.iter().map(|v| if v.abs() < limit { *v } else { 0.25 }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lanes_equal_scalar_code(x in rows(1..9)) {
        check_direct::<q4_0::Format, _>(&below(q4_0::LIMIT, &x), q4_0::quantize_block, &[q4_0::D])?;
        check_direct::<q4_1::Format, _>(&x, q4_1::quantize_block, &[q4_1::D, q4_1::M])?;
        check_direct::<q5_0::Format, _>(&below(q5_0::LIMIT, &x), q5_0::quantize_block, &[q5_0::D])?;
        check_direct::<q5_1::Format, _>(&x, q5_1::quantize_block, &[q5_1::D, q5_1::M])?;
        check_direct::<q8_0::Format, _>(&below(q8_0::LIMIT, &x), q8_0::quantize_block, &[q8_0::D])?;
        check_direct::<mxfp4::Format, _>(&below(mxfp4::LIMIT, &x), mxfp4::quantize_block, &[])?;
        check_levels(&below(iq4_nl::LIMIT, &x), None)?;
    }

    #[test]
    fn lanes_equal_scalar_code_with_importance(x in rows(4..13), importance in importance(1..3)) {
        let x = &x[..x.len() / importance.len() * importance.len()];
        let case = (&below(q4_0::LIMIT, x)[..], &importance[..]);
        check_weighted::<q4_0::Format, _>(case, |x, w| scalar::signed(x, w, false), &[q4_0::D])?;
        check_weighted::<q5_0::Format, _>(case, |x, w| scalar::signed(x, w, true), &[q5_0::D])?;
        check_weighted::<q4_1::Format, _>(case, |x, w| scalar::with_minimum(x, w, false), &[q4_1::D, q4_1::M])?;
        check_weighted::<q5_1::Format, _>(case, |x, w| scalar::with_minimum(x, w, true), &[q5_1::D, q5_1::M])?;
        check_levels(&below(iq4_nl::LIMIT, x), Some(&importance))?;
    }
}

struct Nearest([f32; LANES]);

impl Kernel for Nearest {
    type Output = [i32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        crate::levels::nearest(s, Floats::load(s, &self.0)).to_array()
    }
}

/// On the midpoints of the levels, right beside them, and in steps between and far beyond.
#[test]
fn levels_are_found_alike() {
    let halves = (-600..600).map(|i| i as f32 / 2.0);
    let near = halves.flat_map(|v| [v, v.next_up(), v.next_down(), v + 0.125, v - 0.2]);
    let mut values: Vec<f32> = near.chain([f32::MAX, f32::MIN, f32::INFINITY, -0.0]).collect();
    values.resize(values.len().next_multiple_of(LANES), f32::NAN);
    for values in values.as_chunks().0 {
        let expected = values.map(|v| i32::from(scalar::nearest(v)));
        for isa in Isa::available() {
            assert_eq!(isa.run(Nearest(*values)), expected, "{isa:?}: {values:?}");
        }
    }
}

#[test]
fn exponents_round_as_the_logarithm_does() {
    // Of 2^100 (1 - m 2^-24), 44 steps round up to the power, and none below 2^1.
    for (power, steps) in
        [(100, 44), (64, 22), (20, 11), (9, 5), (4, 1), (1, 0), (-3, 1), (-40, 22), (-100, 44)]
    {
        let power_of_two = 2f32.powi(power);
        let (up, down) = (power_of_two.to_bits() - steps, power_of_two.to_bits() - steps - 1);
        assert_eq!(mxfp4::exponent(f32::from_bits(up)), (power + 125) as u8, "2^{power}");
        assert_eq!(mxfp4::exponent(f32::from_bits(down)), (power + 124) as u8, "below 2^{power}");
    }
    assert_eq!(mxfp4::exponent(f32::MIN_POSITIVE), 0, "not the exponent that means NaN");
    assert_eq!(mxfp4::exponent(f32::MIN_POSITIVE / 2.0), 254);
}
