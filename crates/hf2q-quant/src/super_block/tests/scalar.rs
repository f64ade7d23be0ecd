//! The encoders once more, one block and one value at a time.

use crate::half::{f16_to_f32, f32_to_f16};
use crate::search::Ladder;
use crate::super_block::pack;

pub(crate) fn nearest_int(v: f32) -> i32 {
    ((v + 12_582_912.0).to_bits() as i32 & 0x007f_ffff) - 0x0040_0000
}

/// Scale, negated minimum and codes.
pub(crate) fn affine(x: &[f32], w: &[f32], ladder: Ladder) -> (f32, f32, Vec<u8>) {
    let top = f32::from(ladder.top);
    let (mut min, mut max, mut sum_w, mut sum_x) = (x[0], x[0], w[0], w[0] * x[0]);
    for (&x, &w) in x.iter().zip(w).skip(1) {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
        sum_w += w;
        sum_x += w * x;
    }
    if min > 0.0 {
        min = 0.0;
    }
    if min == max {
        return (0.0, -min, vec![0; x.len()]);
    }
    let plain =
        |inverse: f32, min: f32, v: f32| nearest_int(inverse * (v - min)).min(ladder.top.into()).max(0);
    let error = |codes: &[u8], scale: f32, min: f32| {
        x.iter().zip(w).zip(codes).fold(0.0, |sum, ((&x, &w), &l)| {
            let off = scale * f32::from(l) + min - x;
            sum + w * if ladder.absolute { off.abs() } else { off * off }
        })
    };
    let inverse = top / (max - min);
    let mut scale = 1.0 / inverse;
    let mut codes: Vec<u8> = x.iter().map(|&v| plain(inverse, min, v) as u8).collect();
    let mut least = error(&codes, scale, min);
    for step in 0..=ladder.steps {
        let inverse = (ladder.first + ladder.step * f32::from(step) + top) / (max - min);
        let bounded = |v: f32| {
            let v = inverse * (v - min);
            if v > 0.0 { nearest_int(if v < top { v } else { top }) } else { 0 }
        };
        let new: Vec<u8> = x
            .iter()
            .map(|&v| if ladder.bounded { bounded(v) } else { plain(inverse, min, v) } as u8)
            .collect();
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
        for ((&x, &w), &l) in x.iter().zip(w).zip(&new) {
            let l = f32::from(l);
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let d = sum_w * sum_l2 - sum_l * sum_l;
        if d > 0.0 {
            let mut new_scale = (sum_w * sum_xl - sum_x * sum_l) / d;
            let mut new_min = (sum_l2 * sum_x - sum_l * sum_xl) / d;
            if new_min > 0.0 {
                (new_min, new_scale) = (0.0, sum_xl / sum_l2);
            }
            let found = error(&new, new_scale, new_min);
            if found < least {
                (least, scale, min, codes) = (found, new_scale, new_min, new);
            }
        }
    }
    (scale, -min, codes)
}

fn extreme(x: &[f32]) -> (f32, f32) {
    x.iter()
        .fold((0.0, 0.0), |(most, extreme), &v| if v.abs() > most { (v.abs(), v) } else { (most, extreme) })
}

/// Scale and codes. The scale is NaN where a sum overflows that the reference would go on with.
pub(crate) fn symmetric(x: &[f32], w: &[f32], top: i32) -> (f32, Vec<u8>) {
    let (most, extreme) = extreme(x);
    if most < 1e-15 {
        return (0.0, vec![0; x.len()]);
    }
    let code = |inverse: f32, v: f32| nearest_int(inverse * v).min(top - 1).max(-top);
    let sums = |inverse: f32| {
        x.iter().zip(w).fold((0.0, 0.0), |(xl, l2), (&x, &w)| {
            let l = code(inverse, x) as f32;
            (xl + w * x * l, l2 + w * l * l)
        })
    };
    let mut best_inverse = -top as f32 / extreme;
    let (xl, l2): (f32, f32) = sums(best_inverse);
    let sound = l2 < f32::INFINITY;
    let mut scale = if l2 == 0.0 { 0.0 } else { xl / l2 };
    let mut best = scale * xl;
    for step in (-9..=9_i8).filter(|&step| step != 0) {
        let inverse = -(top as f32 + 0.1 * f32::from(step)) / extreme;
        let (xl, l2) = sums(inverse);
        if l2 > 0.0 && xl * xl > best * l2 {
            scale = xl / l2;
            best = scale * xl;
            best_inverse = inverse;
        }
    }
    let codes = x.iter().map(|&v| (code(best_inverse, v) + top) as u8).collect();
    (if sound { scale } else { f32::NAN }, codes)
}

fn descend(x: &[f32]) -> (f32, Vec<u8>) {
    let (most, extreme) = extreme(x);
    if most < 1e-15 {
        return (0.0, vec![0; x.len()]);
    }
    let inverse = -4.0 / extreme;
    let mut codes: Vec<i32> = x.iter().map(|&v| nearest_int(inverse * v).clamp(-4, 3)).collect();
    let (mut xl, mut l2) = (0.0, 0.0);
    for (&x, &l) in x.iter().zip(&codes) {
        xl += x * x * x * l as f32;
        l2 += x * x * l as f32 * l as f32;
    }
    for _ in 0..5 {
        let mut moved = false;
        for (&x, code) in x.iter().zip(&mut codes) {
            let (w, old) = (x * x, *code as f32);
            let others_xl: f32 = xl - w * x * old;
            let others_l2: f32 = l2 - w * old * old;
            if others_xl > 0.0 {
                let wanted = nearest_int(x * others_l2 / others_xl).clamp(-4, 3);
                let new = wanted as f32;
                let (new_xl, new_l2) = (others_xl + w * x * new, others_l2 + w * new * new);
                if wanted != *code && new_l2 > 0.0 && new_xl * new_xl * l2 > xl * xl * new_l2 {
                    (*code, xl, l2, moved) = (wanted, new_xl, new_l2, true);
                }
            }
        }
        if !moved {
            break;
        }
    }
    (if l2 > 0.0 { xl / l2 } else { 0.0 }, codes.into_iter().map(|l| (l + 4) as u8).collect())
}

/// Scale and codes. The scale is NaN where a sum overflows that the reference would go on with.
fn positive(x: &[f32], w: &[f32], top: i32) -> (f32, Vec<u8>) {
    let most = x.iter().fold(0.0, |most, &v| if most > v { most } else { v });
    if most < 1e-15 {
        return (0.0, vec![0; x.len()]);
    }
    let error = |scale: f32, code: &dyn Fn(f32) -> f32| {
        x.iter().zip(w).fold(0.0, |sum, (&x, &w)| {
            let off = x - scale * code(x);
            sum + w * off * off
        })
    };
    let mut best = top as f32 / most;
    let mut least: f32 = error(1.0 / best, &|v| f32::from(nearest_int(best * v) as u8));
    for step in (-4..=4_i8).filter(|&step| step != 0) {
        let inverse = (0.1 * f32::from(step) + top as f32) / most;
        let found = error(1.0 / inverse, &|v| nearest_int(inverse * v).min(top) as f32);
        if found < least {
            (least, best) = (found, inverse);
        }
    }
    let (mut xl, mut l2) = (0.0, 0.0);
    let mut codes = Vec::new();
    for (&x, &w) in x.iter().zip(w) {
        let l = nearest_int(best * x).min(top);
        codes.push(l as u8);
        xl += w * x * l as f32;
        l2 += w * l as f32 * l as f32;
    }
    for _ in 0..5 {
        let mut moved = false;
        for ((&x, &w), code) in x.iter().zip(w).zip(&mut codes) {
            let old = f32::from(*code);
            let (others_xl, others_l2) = (xl - w * x * old, l2 - w * old * old);
            if others_xl > 0.0 && others_l2 > 0.0 {
                let wanted = nearest_int(x * others_l2 / others_xl).min(top);
                let new = wanted as f32;
                let (new_xl, new_l2) = (others_xl + w * x * new, others_l2 + w * new * new);
                if wanted != i32::from(*code) && new_xl * new_xl * l2 > xl * xl * new_l2 {
                    (*code, xl, l2, moved) = (wanted as u8, new_xl, new_l2, true);
                }
            }
        }
        if !moved {
            break;
        }
    }
    let scale = if l2 > 0.0 { xl / l2 } else { 0.0 };
    (if most < f32::INFINITY && l2 < f32::INFINITY { scale } else { f32::NAN }, codes)
}

fn mean_squares(x: &[f32], share: f32) -> f32 {
    share * x.iter().fold(0.0, |sum, v| sum + v * v) / 256.0
}

fn weigh(x: &[f32], importance: &[f32], squares: f32) -> Vec<f32> {
    x.iter().zip(importance).map(|(x, w)| w * (squares + x * x).sqrt()).collect()
}

/// The steps of the codes of a block, what is added to its values, and the codes of its searches.
struct Grid {
    size: usize,
    scales: Vec<f32>,
    shifts: Vec<f32>,
    kept: Vec<u8>,
}

impl Grid {
    fn codes(&self, x: &[f32], low: i32, high: i32) -> [u8; 256] {
        std::array::from_fn(|j| {
            let group = j / self.size;
            if self.scales[group] == 0.0 {
                return self.kept[j];
            }
            (nearest_int((x[j] + self.shifts[group]) / self.scales[group]).min(high).max(low) - low) as u8
        })
    }
}

/// What `q2_k`, `q4_k` and `q5_k` differ in.
#[derive(Clone, Copy)]
struct WithMinimum {
    size: usize,
    top: u8,
    /// First try and steps after it, without importance.
    tries: (f32, u8),
    scale_top: i32,
    caps: [u8; 2],
}

/// Units, integers of scales and of minimums, and codes of the searches.
fn with_minimum(
    x: &[f32],
    importance: Option<&[f32]>,
    format: WithMinimum,
) -> ([f32; 2], [Vec<u8>; 2], Vec<u8>) {
    let WithMinimum { size, top, tries, scale_top, caps } = format;
    let small = size == 16;
    let (mut scales, mut mins, mut totals, mut kept) = (vec![], vec![], vec![], vec![]);
    for (group, x16) in x.chunks(size).enumerate() {
        let (weights, ladder) = match importance {
            Some(importance) => {
                let squares = mean_squares(x, if small { 1.0 } else { 2.0 });
                let weights = weigh(x16, &importance[group * size..], squares);
                (weights, Ladder { top, first: -0.9, step: 0.05, steps: 36, absolute: false, bounded: true })
            }
            None => {
                let square = x16.iter().fold(0.0, |sum, v| sum + v * v);
                let base = if small { 0.0 } else { (square / size as f32).sqrt() };
                let (first, steps) = tries;
                let ladder = Ladder { top, first, step: 0.1, steps, absolute: small, bounded: false };
                (x16.iter().map(|v| base + v.abs()).collect(), ladder)
            }
        };
        totals.push(weights.iter().fold(0.0, |sum, w| sum + w));
        let (scale, min, codes) = affine(x16, &weights, ladder);
        scales.push(scale);
        mins.push(min);
        kept.extend(codes);
    }
    let quantize = |x: &[f32]| {
        if importance.is_some() {
            let (unit, codes) = positive(x, &totals, scale_top);
            return (unit, codes.into_iter().map(|code| code.min(caps[1])).collect());
        }
        let most = x.iter().fold(0.0, |most, &v| if v > most { v } else { most });
        let inverse = if most > 0.0 { scale_top as f32 / most } else { 0.0 };
        let codes = x.iter().map(|&v| (nearest_int(inverse * v) as u8).min(caps[0])).collect();
        (most / scale_top as f32, codes)
    };
    let ((d, scales), (dmin, mins)) = (quantize(&scales), quantize(&mins));
    ([d, dmin], [scales, mins], kept)
}

pub(super) fn q2_k(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let format = WithMinimum { size: 16, top: 3, tries: (-0.5, 15), scale_top: 15, caps: [255; 2] };
    let (units, [scales, mins], kept) = with_minimum(x, importance, format);
    let packed: Vec<u8> = scales.iter().zip(&mins).map(|(scale, min)| scale | (min << 4)).collect();
    let [d, dmin] = units.map(f32_to_f16);
    let steps = |unit: u16, code: &dyn Fn(u8) -> u8| {
        packed.iter().map(|&byte| f16_to_f32(unit) * f32::from(code(byte))).collect()
    };
    let grid = Grid { size: 16, scales: steps(d, &|b| b & 15), shifts: steps(dmin, &|b| b >> 4), kept };
    let codes = grid.codes(x, 0, 3);
    let mut block = packed.clone();
    let mut pairs = [0; 64];
    pack::put_pairs(&codes, &mut pairs);
    block.extend(pairs);
    block.extend(d.to_le_bytes());
    block.extend(dmin.to_le_bytes());
    block
}

fn k4(x: &[f32], importance: Option<&[f32]>, five: bool) -> Vec<u8> {
    let (top, tries, caps) = if five { (31, (-0.5, 15), [63; 2]) } else { (15, (-1.0, 20), [63, 255]) };
    let format = WithMinimum { size: 32, top, tries, scale_top: 63, caps };
    let (units, [scales, mins], kept) = with_minimum(x, importance, format);
    let packed = pack::k4_scales(&scales.try_into().unwrap(), &mins.try_into().unwrap());
    let [d, dmin] = units.map(f32_to_f16);
    let (mut scales, mut shifts) = (vec![], vec![]);
    for group in 0..8 {
        let (scale, min) = crate::layout::k4_scale_min(group, &packed);
        scales.push(f16_to_f32(d) * f32::from(scale));
        shifts.push(f16_to_f32(dmin) * f32::from(min));
    }
    let codes = Grid { size: 32, scales, shifts, kept }.codes(x, 0, top.into());
    let mut block = [d.to_le_bytes(), dmin.to_le_bytes()].concat();
    block.extend(packed);
    if five {
        let mut bits = [0; 32];
        pack::put_bit(&codes, 4, &mut bits);
        block.extend(bits);
    }
    let mut nibbles = [0; 128];
    pack::put_nibbles(&codes, &mut nibbles);
    block.extend(nibbles);
    block
}

pub(super) fn q4_k(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    k4(x, importance, false)
}

pub(super) fn q5_k(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    k4(x, importance, true)
}

/// NaN if a scale is not finite, for the block to be refused.
fn poison(scales: &[f32]) -> f32 {
    if scales.iter().all(|scale| scale.is_finite()) { 0.0 } else { f32::NAN }
}

pub(super) fn q3_k(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let (mut scales, mut totals, mut kept) = (vec![], vec![], vec![]);
    for (group, x16) in x.chunks(16).enumerate() {
        let (scale, codes) = match importance {
            Some(importance) => {
                let weights = weigh(x16, &importance[group * 16..], mean_squares(x, 2.0));
                totals.push(weights.iter().fold(0.0, |sum, w| sum + w));
                symmetric(x16, &weights, 4)
            }
            None => descend(x16),
        };
        scales.push(scale);
        kept.extend(codes);
    }
    let (unit, codes) = if importance.is_some() {
        let (unit, codes) = symmetric(&scales, &totals, 32);
        (unit + poison(&scales), codes)
    } else {
        let (most, largest) = extreme(&scales);
        let inverse = -32.0 / largest;
        let codes = scales.iter().map(|v| ((nearest_int(inverse * v) as i8).clamp(-32, 31) + 32) as u8);
        let unit = 1.0 / inverse + poison(&scales);
        if most == 0.0 { (poison(&scales), vec![0; 16]) } else { (unit, codes.collect()) }
    };
    let d = f32_to_f16(unit);
    let scales = codes.iter().map(|&code| f16_to_f32(d) * f32::from(code as i8 - 32)).collect();
    let codes4 = Grid { size: 16, scales, shifts: vec![0.0; 16], kept }.codes(x, -4, 3);
    let (mut high, mut low) = ([0; 32], [0; 64]);
    pack::put_bit(&codes4, 2, &mut high);
    pack::put_pairs(&codes4, &mut low);
    let mut block = [&high[..], &low[..]].concat();
    block.extend(pack::q3_scales(&codes.try_into().unwrap()));
    block.extend(d.to_le_bytes());
    block
}

pub(super) fn q6_k(x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let (mut scales, mut kept) = (vec![], vec![]);
    for (group, x16) in x.chunks(16).enumerate() {
        let squares: Vec<f32> = x16.iter().map(|v| v * v).collect();
        let weights = importance.map_or(&squares[..], |importance| &importance[group * 16..][..16]);
        let (scale, codes) = symmetric(x16, weights, 32);
        scales.push(scale);
        kept.extend(codes);
    }
    let (most, largest) = extreme(&scales);
    if most < 1e-15 && poison(&scales) == 0.0 {
        return vec![0; 210];
    }
    let inverse = -128.0 / largest;
    let d = f32_to_f16(1.0 / inverse + poison(&scales));
    let integers: Vec<i8> = scales.iter().map(|v| nearest_int(inverse * v).min(127) as i8).collect();
    let scales = integers.iter().map(|&code| f16_to_f32(d) * f32::from(code)).collect();
    let codes = Grid { size: 16, scales, shifts: vec![0.0; 16], kept }.codes(x, -32, 31);
    let mut block = vec![];
    for half in codes.chunks(128) {
        block.extend((0..64).map(|l| (half[l] & 15) | (half[l + 64] << 4)));
    }
    let mut high = [0; 64];
    pack::put_pairs(&codes.map(|code| code >> 4), &mut high);
    block.extend(high);
    block.extend(integers.iter().map(|&code| code as u8));
    block.extend(d.to_le_bytes());
    block
}
