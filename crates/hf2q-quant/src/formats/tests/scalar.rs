//! Encoders with a search once more, one block and one value at a time.

use crate::formats::{iq4_xs, put_fifths, put_half, put_nibbles, q4_0, q4_1, q5_0, q5_1};
use crate::layout::KVALUES_IQ4NL;
use crate::search::Ladder;
use crate::super_block::tests::scalar::{affine, nearest_int, symmetric};

fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, v| sum + v * v)
}

fn weigh(x: &[f32], importance: &[f32], sigma2: f32) -> Vec<f32> {
    x.iter().zip(importance).map(|(x, w)| w * (sigma2 + x * x).sqrt()).collect()
}

fn is_unimportant(importance: &[f32]) -> bool {
    importance.iter().all(|&w| w == 0.0)
}

/// One row of `q4_0` or `q5_0`.
pub(super) fn signed(x: &[f32], importance: &[f32], five: bool) -> Vec<u8> {
    let sigma2 = sum_of_squares(x) / x.len() as f32;
    let blocks = x.as_chunks::<32>().0.iter().zip(importance.as_chunks::<32>().0);
    let encode = |(x, importance): (&[f32; 32], &[f32; 32])| {
        let (mut four, mut five_bits) = ([0; q4_0::BYTES], [0; q5_0::BYTES]);
        if is_unimportant(importance) {
            q4_0::quantize_block(x, &mut four);
            q5_0::quantize_block(x, &mut five_bits);
        } else {
            let (d, codes) = symmetric(x, &weigh(x, importance, sigma2), if five { 16 } else { 8 });
            let codes = codes.first_chunk().unwrap();
            put_half(&mut four, q4_0::D, d);
            put_nibbles(codes, &mut four[q4_0::QS]);
            put_half(&mut five_bits, q5_0::D, d);
            put_fifths(codes, &mut five_bits[q5_0::QH.start..]);
        }
        if five { five_bits.to_vec() } else { four.to_vec() }
    };
    blocks.flat_map(encode).collect()
}

/// One row of `q4_1` or `q5_1`.
pub(super) fn with_minimum(x: &[f32], importance: &[f32], five: bool) -> Vec<u8> {
    let sigma2 = sum_of_squares(x) / x.len() as f32;
    let top = if five { 31 } else { 15 };
    let ladder = Ladder { top, first: -0.9, step: 0.05, steps: 36, absolute: false, bounded: true };
    let mut out = Vec::new();
    for (x, importance) in x.chunks(32).zip(importance.chunks(32)) {
        let (d, below, codes) = affine(x, &weigh(x, importance, sigma2), ladder);
        let codes = codes.first_chunk().unwrap();
        let mut block = [0; q5_1::BYTES];
        put_half(&mut block, q5_1::D, d);
        put_half(&mut block, q5_1::M, -below);
        if five {
            put_fifths(codes, &mut block[q5_1::QH.start..]);
            out.extend(block);
        } else {
            put_nibbles(codes, &mut block[q4_1::QS]);
            out.extend(&block[..q4_1::BYTES]);
        }
    }
    out
}

/// The nearest level, of two equally near the upper one.
pub(super) fn nearest(v: f32) -> u8 {
    let level = |k: usize| f32::from(KVALUES_IQ4NL[k]);
    if v <= level(0) {
        return 0;
    }
    (0..15).find(|&k| v - level(k) < level(k + 1) - v).unwrap_or(15) as u8
}

/// The scale of a group.
fn search(x: &[f32], weights: &[f32]) -> f32 {
    let (mut most, mut extreme) = (0.0, 0.0);
    for &v in x {
        if v.abs() > most {
            (most, extreme) = (v.abs(), v);
        }
    }
    if most < 1e-15 {
        return 0.0;
    }
    let sums = |inverse: f32| {
        let (mut qx, mut qq) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(weights) {
            let q = f32::from(KVALUES_IQ4NL[usize::from(nearest(inverse * x))]);
            qx += w * q * x;
            qq += w * q * q;
        }
        (qx, qq)
    };
    let (qx, qq) = sums(1.0 / (-extreme / -127.0));
    let mut scale = if qq > 0.0 { qx / qq } else { 0.0 };
    let mut best = scale * qx;
    for step in -7..=7_i8 {
        let (qx, qq) = sums((f32::from(step) - 127.0) / extreme);
        if qq > 0.0 && qx * qx > best * qq {
            scale = qx / qq;
            best = scale * qx;
        }
    }
    scale
}

fn squares(x: &[f32]) -> Vec<f32> {
    x.iter().map(|v| v * v).collect()
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn codes(x: &[f32], inverse: f32) -> [u8; 32] {
    std::array::from_fn(|j| nearest(inverse * x[j]))
}

/// Any number of blocks of `iq4_nl`.
pub(super) fn iq4_nl(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, x) in x.chunks(32).enumerate() {
        let importance = importance.map(|weights| &weights[number * 32 % weights.len()..][..32]);
        let weights = match importance.filter(|weights| !is_unimportant(weights)) {
            Some(importance) => weigh(x, importance, sum_of_squares(x) * (2.0 / 32.0)),
            None => squares(x),
        };
        let scale = search(x, &weights);
        let mut block = [0; 18];
        put_half(&mut block, 0, scale);
        put_nibbles(&codes(x, inverse(scale)), &mut block[2..]);
        out.extend(block);
    }
    out
}

/// Any number of blocks of `iq4_xs`.
pub(super) fn iq4_xs(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, x) in x.chunks(256).enumerate() {
        let importance = importance.map(|weights| &weights[number * 256 % weights.len()..][..256]);
        let weights = match importance.filter(|weights| !is_unimportant(weights)) {
            Some(importance) => weigh(x, importance, sum_of_squares(x) * (2.0 / 256.0)),
            None => squares(x),
        };
        let scales: Vec<_> = x.chunks(32).zip(weights.chunks(32)).map(|(x, w)| search(x, w)).collect();
        let first_of_largest = scales.iter().fold(0.0, |a: f32, &b| if b.abs() > a.abs() { b } else { a });
        let d = if scales.iter().any(|s| s.is_nan()) { f32::NAN } else { -first_of_largest / 32.0 };
        let mut block = [0; iq4_xs::BYTES];
        put_half(&mut block, iq4_xs::D, d);
        for (group, (x, scale)) in x.chunks(32).zip(scales).enumerate() {
            let step = nearest_int(inverse(d) * scale).clamp(-32, 31);
            put_nibbles(&codes(x, inverse(d * step as f32)), &mut block[8 + 16 * group..][..16]);
            let step = (step + 32) as u8;
            block[2 + group / 4] |= (step >> 4) << (2 * (group % 4));
            block[4 + group / 2] |= (step & 15) << (4 * (group % 2));
        }
        out.extend(block);
    }
    out
}
