//! Cache formats: against an independent computation in higher precision, and what their theory promises.

use std::path::Path;

use hf2q_quant::half::{f16_to_f32, f32_to_f16};
use hf2q_quant::kv::{GROUP, INT8_BLOCK, Turbo, encode_int8, rotate};
use safetensors::SafeTensors;

const BLOCKS: [usize; 3] = [64, 128, 256];

fn golden() -> Vec<u8> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/kv/tq.safetensors"));
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

#[test]
fn blocks_equal_those_of_an_independent_computation() {
    let file = golden();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let data = |name: String| tensors.tensor(&name).unwrap().data().to_vec();
    for n in BLOCKS {
        let (rows, rotated) = (singles(&data(format!("d{n}.rows"))), singles(&data(format!("d{n}.rotated"))));
        for turbo in Turbo::ALL {
            let name = format!("d{n}.tq{}", turbo.bits());
            let part = |what: &str| data(format!("{name}.{what}"));
            let (codes, packed, decoded) = (part("codes"), part("packed"), singles(&part("decoded")));
            let scales = part("scales");
            for (i, row) in rows.chunks_exact(n).enumerate() {
                let at = i * n..(i + 1) * n;
                let (mut x, mut found) = (row.to_vec(), vec![0; n]);
                let scale = turbo.encode(&mut x, &mut found);
                let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                for (x, r) in x.iter().zip(&rotated[at.clone()]) {
                    assert!((x - r).abs() <= 1e-6 * largest, "{name} row {i}: {x} rotated, expected {r}");
                }
                assert_eq!(found, codes[at.clone()], "{name} row {i}");
                assert_eq!(scale.to_le_bytes(), scales[2 * i..2 * i + 2], "{name} row {i}");
                let mut back = vec![0.0; n];
                turbo.decode_rotated(&found, scale, &mut back);
                for (found, want) in back.iter().zip(&decoded[at]) {
                    assert!((found - want).abs() <= 1e-6 * want.abs(), "{name} row {i}: {found} for {want}");
                }
                let bytes = n * turbo.bits() / 8;
                assert_eq!(pack(turbo, &found), packed[i * bytes..(i + 1) * bytes], "{name} row {i}");
            }
        }
    }
}

fn pack(turbo: Turbo, codes: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    for codes in codes.as_chunks::<GROUP>().0 {
        let mut group = vec![0; turbo.group_bytes()];
        turbo.pack(codes, &mut group);
        out.extend(group);
    }
    out
}

/// The density of the normal distribution and, by Simpson's rule, its integral from `a` to `b`.
fn normal(a: f64, b: f64) -> (f64, f64) {
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = 2000;
    let width = (b - a) / f64::from(steps);
    let sum: f64 = (0..=steps)
        .map(|i| {
            let weight = if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
            weight * density(a + width * f64::from(i))
        })
        .sum();
    (density(a) - density(b), sum * width / 3.0)
}

#[test]
fn levels_are_means_of_their_cells_and_thresholds_lie_between() {
    for turbo in Turbo::ALL {
        let (levels, thresholds) = (turbo.levels(), turbo.thresholds());
        assert_eq!((levels.len(), thresholds.len()), (1 << (turbo.bits() - 1), levels.len() - 1));
        assert!(levels.is_sorted() && levels[0] > 0.0);
        let mut power = 0.0;
        for (i, &level) in levels.iter().enumerate() {
            let low = if i == 0 { 0.0 } else { f64::from(thresholds[i - 1]) };
            let high = thresholds.get(i).map_or(12.0, |&t| f64::from(t));
            let (moment, probability) = normal(low, high);
            let mean = moment / probability;
            assert!(
                (mean / f64::from(level) - 1.0).abs() < 1e-5,
                "{turbo:?}: level {i} is {level}, not {mean}"
            );
            power += 2.0 * probability * f64::from(level) * f64::from(level);
        }
        for (pair, &t) in levels.windows(2).zip(thresholds) {
            let middle = f64::midpoint(f64::from(pair[0]), f64::from(pair[1]));
            assert!((f64::from(t) - middle).abs() < 1e-6, "{turbo:?}: {t} for {middle}");
        }
        assert!(((1.0 - power) / turbo.error() - 1.0).abs() < 2e-3, "{turbo:?}: {}", 1.0 - power);
        for (code, &value) in turbo.values().iter().enumerate() {
            let level = levels[code % levels.len()];
            assert_eq!(value, if code < levels.len() { level } else { -level }, "{turbo:?}: code {code}");
        }
    }
}

/// Normal values: a sum of twelve uniform ones has other tails, so Box and Muller's.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn row(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let (u, v) = (self.uniform(), self.uniform());
                ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
            })
            .collect()
    }
}

/// Square error and square of a row.
fn errors(turbo: Turbo, row: &[f32]) -> (f64, f64) {
    let (mut x, mut codes, mut back) = (row.to_vec(), vec![0; row.len()], vec![0.0; row.len()]);
    let scale = turbo.encode(&mut x, &mut codes);
    turbo.decode_rotated(&codes, scale, &mut back);
    let square = |x: f64| x * x;
    let error = x.iter().zip(&back).map(|(&x, &y)| square(f64::from(x) - f64::from(y))).sum();
    (error, x.iter().map(|&x| square(f64::from(x))).sum())
}

#[test]
fn the_error_of_normal_rows_is_that_of_the_quantizer() {
    for n in BLOCKS {
        let mut last = f64::INFINITY;
        for turbo in Turbo::ALL {
            let mut normal = Normal(7);
            let (mut error, mut square) = (0.0, 0.0);
            for _ in 0..120_000 / n {
                let row = errors(turbo, &normal.row(n));
                error += row.0;
                square += row.1;
            }
            let found = error / square / turbo.error();
            // The scale of a block fits its own values: better than a quantizer of known variance, the shorter the block.
            assert!(
                (1.0 - 12.0 / n as f64..1.02).contains(&found),
                "{turbo:?}, blocks of {n}: {found} of the quantizer's error"
            );
            assert!(error < last, "{turbo:?}: more bits have a smaller error");
            last = error;
        }
    }
}

#[test]
fn rows_at_the_edge_have_a_defined_code() {
    for n in BLOCKS {
        for turbo in Turbo::ALL {
            let encode = |row: &[f32]| {
                let (mut x, mut codes) = (row.to_vec(), vec![0xff; n]);
                let scale = turbo.encode(&mut x, &mut codes);
                let largest = turbo.values().len();
                assert!(codes.iter().all(|&c| usize::from(c) < largest), "{turbo:?}");
                (f16_to_f32(scale), codes)
            };
            let zero = encode(&vec![0.0; n]);
            assert_eq!(zero, (0.0, vec![0; n]));
            assert_eq!(encode(&vec![f32::MIN_POSITIVE; n]), zero, "squares below the range count as zero");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                let mut row = vec![1.0; n];
                row[n / 2] = bad;
                let (scale, codes) = encode(&row);
                assert!(scale.is_nan() && codes == vec![0; n], "{turbo:?}: {bad}");
            }
            // An outlier is spread evenly, so all codes have one magnitude.
            let mut row = vec![0.0; n];
            row[5] = 1000.0;
            let (scale, codes) = encode(&row);
            let value = |c: u8| scale * turbo.values()[usize::from(c)];
            let expected = 1000.0 / (n as f32).sqrt();
            assert!(codes.iter().all(|&c| (value(c).abs() / expected - 1.0).abs() < 1e-3), "{turbo:?}");
            // Beyond half precision: the largest scale.
            row[5] = 1e9;
            assert_eq!(encode(&row).0, 65504.0, "{turbo:?}");
        }
    }
}

#[test]
fn int8_is_that_of_files() {
    let mut normal = Normal(3);
    let row = normal.row(INT8_BLOCK);
    let mut codes = [0; INT8_BLOCK];
    let scale = encode_int8(row.as_chunks().0.first().unwrap(), &mut codes);
    let mut block = vec![];
    hf2q_quant::quantize(hf2q_gguf::TensorType::Q8_0, &row, &mut block).unwrap();
    assert_eq!((&block[..2], &block[2..]), (&scale.to_le_bytes()[..], &codes[..]));
    let mut bad = [1.0; INT8_BLOCK];
    bad[3] = f32::NAN;
    assert!(f16_to_f32(encode_int8(&bad, &mut codes)).is_nan());
}

#[test]
fn a_dot_product_survives_the_rotation() {
    let mut normal = Normal(5);
    for n in BLOCKS {
        let (a, b) = (normal.row(n), normal.row(n));
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let (mut ra, mut rb) = (a.clone(), b.clone());
        rotate(&mut ra);
        rotate(&mut rb);
        assert!((dot(&a, &b) - dot(&ra, &rb)).abs() < 1e-4, "{n}");
        assert_ne!(f32_to_f16(ra[0]), f32_to_f16(a[0]));
    }
}
