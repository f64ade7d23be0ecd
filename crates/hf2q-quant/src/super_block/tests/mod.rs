//! Lanes against scalar code, on every instruction set, with values that no model should have.

pub(crate) mod scalar;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{LEN, SuperBlock, encode_on};
use crate::formats::{q2_k, q3_k, q4_k, q5_k, q6_k};
use crate::lanes::Isa;

/// What decides which values a group of 32 has.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Uniform,
    Constant,
    Alternating,
    Outlier,
    /// Small integers and halves: ties of all roundings.
    Ties,
    /// Around an offset much larger than their differences.
    Narrow,
    SparseZeros,
}

fn values(kind: Kind, exponent: i32, noise: &[f32]) -> Vec<f32> {
    let scale = 2f64.powi(exponent);
    let of = |j: usize| f64::from(noise[j]);
    let value = |j: usize| match kind {
        Kind::Uniform => of(j),
        Kind::Constant => of(0),
        Kind::Alternating => of(0) * if j.is_multiple_of(2) { 1.0 } else { -1.0 },
        Kind::Outlier => of(j) * if j == 13 { 1000.0 } else { 1.0 },
        Kind::Ties => (of(j) * 8.0).round() / 2.0,
        Kind::Narrow => (of(0) * 4.0).round() + of(j) / 4096.0,
        Kind::SparseZeros => {
            if of(j) > 0.8 {
                of(j)
            } else {
                0.0_f64.copysign(of(j))
            }
        }
    };
    (0..32).map(|j| ((value(j) * scale) as f32).clamp(f32::MIN, f32::MAX)).collect()
}

fn kind() -> impl Strategy<Value = Kind> + Clone {
    use Kind::*;
    prop_oneof![
        4 => Just(Uniform),
        1 => Just(Constant),
        1 => Just(Alternating),
        1 => Just(Outlier),
        1 => Just(Ties),
        1 => Just(Narrow),
        1 => Just(SparseZeros),
    ]
}

/// Rows of groups of all kinds. Most are of the size of weights, some from subnormals to the largest numbers.
pub(crate) fn rows(blocks: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f32>> {
    let exponent = prop_oneof![6 => -12..6, 2 => -149..24, 1 => 24..128];
    let group =
        (kind(), exponent, vec(-1.0..=1.0f32, 32)).prop_map(|(kind, e, noise)| values(kind, e, &noise));
    blocks.prop_flat_map(move |count| vec(group.clone(), count * 8)).prop_map(|groups| groups.concat())
}

/// Importance of one row: usual, partly zero, all zero, equal, or of any size.
pub(crate) fn importance(blocks: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f32>> {
    let group = (0..6, -149..127, vec(0.0..=1.0f32, 32)).prop_map(|(kind, exponent, noise)| {
        let weight = |w: f32| match kind {
            0 => 0.0,
            1 => 1.0,
            2 => (w * 10.0 - 5.0).max(0.0),
            3 => (f64::from(w) * 2f64.powi(exponent)) as f32,
            _ => w.powi(4) * 100.0,
        };
        noise.into_iter().map(weight).collect::<Vec<_>>()
    });
    let usual =
        blocks.prop_flat_map(move |count| vec(group.clone(), count * 8)).prop_map(|groups| groups.concat());
    let empty_block = (usual.clone(), any::<bool>()).prop_map(|(mut weights, empty)| {
        weights[..LEN].fill(if empty { 0.0 } else { 1.0 });
        weights
    });
    prop_oneof![3 => usual, 1 => empty_block]
}

type Scalar = fn(&[f32], Option<&[f32]>) -> Vec<u8>;

/// Compares blocks that are not marked as beyond the format.
fn check<F: SuperBlock<BYTES>, const BYTES: usize>(
    (x, importance): (&[f32], Option<&[f32]>),
    scalar: Scalar,
    scales: &[usize],
) -> Result<(), TestCaseError> {
    let is_sound = |block: &[u8]| {
        scales.iter().all(|&at| u16::from_le_bytes([block[at], block[at + 1]]) & 0x7c00 != 0x7c00)
    };
    let mut expected = Vec::new();
    for (number, x) in x.chunks(LEN).enumerate() {
        let start = number * LEN;
        let weights = importance.map(|weights| &weights[start % weights.len()..][..LEN]);
        expected.push(scalar(x, weights.filter(|weights| weights.iter().any(|&w| w != 0.0))));
    }
    for isa in Isa::available() {
        let mut found = vec![0; x.len() / LEN * BYTES];
        encode_on::<F, BYTES>(isa, x, importance, &mut found);
        for (index, (found, expected)) in found.chunks(BYTES).zip(&expected).enumerate() {
            prop_assert_eq!(is_sound(found), is_sound(expected), "{:?}: block {}", isa, index);
            if is_sound(found) {
                prop_assert_eq!(found, &expected[..], "{:?}: block {}", isa, index);
            }
        }
    }
    Ok(())
}

fn check_all(x: &[f32], importance: Option<&[f32]>) -> Result<(), TestCaseError> {
    let case = (x, importance);
    check::<q2_k::Format, { q2_k::BYTES }>(case, scalar::q2_k, &[q2_k::D, q2_k::DMIN])?;
    check::<q3_k::Format, { q3_k::BYTES }>(case, scalar::q3_k, &[q3_k::D])?;
    check::<q4_k::Format, { q4_k::BYTES }>(case, scalar::q4_k, &[q4_k::D, q4_k::DMIN])?;
    check::<q5_k::Format, { q5_k::BYTES }>(case, scalar::q5_k, &[q5_k::D, q5_k::DMIN])?;
    check::<q6_k::Format, { q6_k::BYTES }>(case, scalar::q6_k, &[q6_k::D])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lanes_equal_scalar_code(x in rows(1..20)) {
        check_all(&x, None)?;
    }

    #[test]
    fn lanes_equal_scalar_code_with_importance(x in rows(2..3), y in rows(1..4), importance in importance(1..3)) {
        // Rows of one or two blocks, a whole number of them.
        let mut x = [x, y].concat();
        x.truncate(x.len() / importance.len() * importance.len());
        check_all(&x, Some(&importance))?;
    }
}
