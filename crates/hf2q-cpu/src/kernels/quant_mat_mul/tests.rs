#![expect(unsafe_code, reason = "the output of a product is a raw pointer")]

use hf2q_gguf::TensorType;
use hf2q_quant::dequantize;
use proptest::prelude::*;

use super::*;
use crate::isa::Isa;

/// Every format, with the offsets of the f16 fields of its block.
const FORMATS: [(TensorType, &[usize]); 13] = [
    (TensorType::Q4_0, &[0]),
    (TensorType::Q4_1, &[0, 2]),
    (TensorType::Q5_0, &[0]),
    (TensorType::Q5_1, &[0, 2]),
    (TensorType::Q8_0, &[0]),
    (TensorType::Q2K, &[80, 82]),
    (TensorType::Q3K, &[108]),
    (TensorType::Q4K, &[0, 2]),
    (TensorType::Q5K, &[0, 2]),
    (TensorType::Q6K, &[208]),
    (TensorType::Iq4Nl, &[0]),
    (TensorType::Iq4Xs, &[0]),
    (TensorType::Mxfp4, &[]),
];

/// A small generator: the tests need many bytes and no statistics.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In -1 .. 1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Blocks of random codes, or of one repeated byte, with scales of a sensible size.
fn blocks(ty: TensorType, n: usize, noise: &mut Noise, fill: Option<u8>) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * ty.block_bytes()).map(|_| fill.unwrap_or(noise.next() as u8)).collect();
    let fields = FORMATS.iter().find(|f| f.0 == ty).unwrap().1;
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in fields {
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(noise.float()).to_le_bytes());
        }
        if ty == TensorType::Mxfp4 {
            block[0] = 120 + noise.next() as u8 % 12;
        }
    }
    bytes
}

fn activations(isa: Isa, rows: usize, n_in: usize, noise: &mut Noise) -> QuantRows {
    let mut x = QuantRows::new();
    x.resize(rows, n_in);
    for out in x.rows_mut() {
        let row: Vec<f32> = (0..n_in).map(|_| noise.float() * 4.0).collect();
        quantize_row(isa, &row, out);
    }
    x
}

/// Products of the picked rows, in an output whose row `i` belongs to pick `i`.
fn product(mm: &QuantMatMul<'_>, input: Picked<'_>, n_out: usize, step: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; input.rows.len() * n_out];
    let rows: Vec<u32> = (0..input.rows.len() as u32).collect();
    // SAFETY: the rows are those of `out`, and only this thread touches it.
    let to = unsafe { OutputRows::new(out.as_mut_ptr(), n_out, &rows) };
    let mut scratch = Scratch::new();
    for start in (0..n_out).step_by(step) {
        mm.run(input, start..n_out.min(start + step), &to, &mut scratch);
    }
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Compares with a double precision product of what both sides decode to.
fn check_against_oracle(ty: TensorType, fill: Option<u8>) {
    let (rows, n_in, n_out) = (3, 768, 37);
    let mut noise = Noise(7 + u64::from(ty.id()));
    let weight = blocks(ty, n_out * n_in / ty.block_len(), &mut noise, fill);
    let mut decoded = vec![0.0; n_out * n_in];
    dequantize(ty, &weight, &mut decoded).unwrap();
    for isa in Isa::available() {
        let mut x = activations(isa, rows, n_in, &mut Noise(5));
        if fill.is_some() {
            // Codes of 127 and -127 only.
            quantize_row(isa, &vec![4.0; n_in], x.row_mut(1));
            quantize_row(isa, &vec![-4.0; n_in], x.row_mut(2));
        }
        let mm = QuantMatMul::new(isa, ty, &weight, (n_out, n_in));
        let out = product(&mm, Picked { x: &x, rows: &[0, 1, 2] }, n_out, 48);
        for (i, got) in out.iter().enumerate() {
            let (row, w) = (x.row(i / n_out), &decoded[i % n_out * n_in..][..n_in]);
            let values =
                row.codes.iter().enumerate().map(|(k, &q)| f64::from(q) * f64::from(row.scales[k / 32]));
            let terms = values.zip(w).map(|(x, &w)| x * f64::from(w));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            let error = (f64::from(*got) - sum).abs() / size.max(1e-30);
            assert!(error < 1e-6, "{ty} {} element {i}: {got} against {sum}, error {error:e}", isa.name());
        }
    }
}

#[test]
fn products_equal_those_of_decoded_weights() {
    for (ty, _) in FORMATS {
        check_against_oracle(ty, None);
    }
}

#[test]
fn extreme_codes_do_not_saturate() {
    for (ty, _) in FORMATS {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            check_against_oracle(ty, Some(fill));
        }
    }
}

#[test]
fn largest_codes_on_both_sides_are_summed_exactly() {
    let mut x = QuantRows::new();
    x.resize(1, 32);
    for isa in Isa::available() {
        for sign in [1.0, -1.0] {
            quantize_row(isa, &[127.0 * sign; 32], x.row_mut(0));
            let mut weight = [0x80u8; 34 * 16];
            for block in weight.chunks_exact_mut(34) {
                block[..2].copy_from_slice(&half::f16::ONE.to_le_bytes());
            }
            let mm = QuantMatMul::new(isa, TensorType::Q8_0, &weight, (16, 32));
            assert_eq!(
                product(&mm, Picked { x: &x, rows: &[0] }, 16, 16),
                [-128.0 * 127.0 * 32.0 * sign; 16]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// No instruction set, row count, order of rows or cut of the columns changes a bit.
    #[test]
    fn results_are_invariant(
        seed in 1u64..u64::MAX,
        format in 0..FORMATS.len(),
        picks in prop::collection::vec(0u32..5, 1..71),
        (n_out, k, panels) in (1usize..70, 1usize..7, 1usize..5),
    ) {
        let ty = FORMATS[format].0;
        let (n_in, mut noise) = (256 * k, Noise(seed));
        let weight = blocks(ty, n_out * n_in / ty.block_len(), &mut noise, None);
        let x = activations(Isa::Portable, 5, n_in, &mut noise);
        let alone: Vec<Vec<u32>> = (0..5).map(|row| {
            let mm = QuantMatMul::new(Isa::Portable, ty, &weight, (n_out, n_in));
            bits(&product(&mm, Picked { x: &x, rows: &[row] }, n_out, 80))
        }).collect();
        for isa in Isa::available() {
            let mm = QuantMatMul::new(isa, ty, &weight, (n_out, n_in));
            let all = product(&mm, Picked { x: &x, rows: &picks }, n_out, PANEL * panels);
            for (row, pick) in all.chunks_exact(n_out).zip(&picks) {
                prop_assert_eq!(&bits(row), &alone[*pick as usize], "{} {}", ty, isa.name());
            }
        }
    }

    #[test]
    fn quantized_activations_are_close_and_equal_everywhere(
        seed in 1u64..u64::MAX,
        size in -90i32..100,
        n in (1usize..40).prop_map(|groups| groups * GROUP),
    ) {
        let mut noise = Noise(seed);
        let x: Vec<f32> = (0..n).map(|_| noise.float() * (size as f32).exp2()).collect();
        let mut first: Option<(Vec<i8>, Vec<u32>)> = None;
        for isa in Isa::available() {
            let mut rows = QuantRows::new();
            rows.resize(1, n);
            quantize_row(isa, &x, rows.row_mut(0));
            let row = rows.row(0);
            for (k, (&x, &code)) in x.iter().zip(row.codes).enumerate() {
                let scale = row.scales[k / 32];
                prop_assert!(code != -128);
                prop_assert!((x - f32::from(code) * scale).abs() <= scale * 0.5001);
            }
            for (sum, codes) in row.sums.iter().zip(row.codes.chunks(16)) {
                prop_assert_eq!(*sum, codes.iter().map(|&c| i32::from(c)).sum::<i32>());
            }
            let this = (row.codes.to_vec(), bits(row.scales));
            prop_assert_eq!(first.get_or_insert(this.clone()), &this);
        }
    }
}

#[test]
fn many_rows_in_several_blocks_equal_one() {
    let (ty, n_in, n_out, rows) = (TensorType::Q4_0, 4096, 16, 250);
    let mut noise = Noise(11);
    let weight = blocks(ty, n_out * n_in / 32, &mut noise, None);
    let x = activations(Isa::detect(), rows, n_in, &mut noise);
    let mm = QuantMatMul::new(Isa::detect(), ty, &weight, (n_out, n_in));
    let picks: Vec<u32> = (0..rows as u32).collect();
    let all = product(&mm, Picked { x: &x, rows: &picks }, n_out, 16);
    for row in [0, 1, 7, 8, 127, 128, 249] {
        let one = product(&mm, Picked { x: &x, rows: &[row] }, n_out, 16);
        assert_eq!(bits(&one), bits(&all[row as usize * n_out..][..n_out]), "row {row}");
    }
}

/// Products of rows that are laid out before equal those of one row at a time, with one range of k and with several.
#[test]
fn rows_in_octets_equal_others() {
    for (i, (ty, _)) in FORMATS.into_iter().enumerate() {
        let (n_in, n_out) = ([768, 2304][i % 2], 37);
        let mut noise = Noise(31 + i as u64);
        let weight = blocks(ty, n_out * n_in / ty.block_len(), &mut noise, None);
        let values: Vec<f32> = (0..70 * n_in).map(|_| noise.float()).collect();
        let plain = QuantMatMul::new(Isa::Portable, ty, &weight, (n_out, n_in));
        let mut one = QuantRows::new();
        one.resize(1, n_in);
        let mut alone = Vec::new();
        for row in values.chunks(n_in) {
            quantize_row(Isa::Portable, row, one.row_mut(0));
            alone.extend(bits(&product(&plain, Picked { x: &one, rows: &[0] }, n_out, 48)));
        }
        let counts = [9, 15, 16, 17, 70];
        for (isa, rows) in Isa::available().into_iter().flat_map(|isa| counts.map(|rows| (isa, rows))) {
            if !in_octets(isa, rows) {
                continue;
            }
            let mut x = QuantRows::new();
            x.resize(rows, n_in);
            x.add_octets(isa);
            for (row, values) in values.chunks(n_in).take(rows).enumerate() {
                // SAFETY: this thread has all rows.
                quantize_row(isa, values, unsafe { x.row_in_octets(row) });
            }
            let (mut out, list) = (vec![f32::NAN; rows * n_out], (0..rows as u32).collect::<Vec<_>>());
            // SAFETY: the rows are those of `out`, and only this thread touches it.
            let to = unsafe { OutputRows::new(out.as_mut_ptr(), n_out, &list) };
            let mm = QuantMatMul::new(isa, ty, &weight, (n_out, n_in));
            let mut scratch = Scratch::new();
            for columns in [0..16, 16..n_out] {
                mm.run_laid_out(Picked { x: &x, rows: &list }, columns, &to, &mut scratch);
            }
            assert_eq!(bits(&out), alone[..rows * n_out], "{ty} {} {rows} rows", isa.name());
        }
    }
}

#[test]
fn other_activations_in_the_same_place_are_laid_out_anew() {
    let (ty, n_in, n_out) = (TensorType::Q4_0, 64, 48);
    let weight = blocks(ty, n_out * n_in / ty.block_len(), &mut Noise(3), None);
    for isa in Isa::available() {
        let mm = QuantMatMul::new(isa, ty, &weight, (n_out, n_in));
        let (mut x, mut scratch) = (QuantRows::new(), Scratch::new());
        x.resize(2, n_in);
        for seed in 0..3 {
            let other = activations(isa, 2, n_in, &mut Noise(seed));
            for row in 0..2 {
                let (to, from) = (x.row_mut(row), other.row(row));
                to.codes.copy_from_slice(from.codes);
                to.scales.copy_from_slice(from.scales);
                to.sums.copy_from_slice(from.sums);
            }
            let mut out = vec![f32::NAN; 2 * n_out];
            // SAFETY: the rows are those of `out`, and only this thread touches it.
            let to = unsafe { OutputRows::new(out.as_mut_ptr(), n_out, &[0, 1]) };
            scratch.renew();
            for columns in [0..16, 16..32, 32..n_out] {
                mm.run(Picked { x: &x, rows: &[0, 1] }, columns, &to, &mut scratch);
            }
            assert_eq!(bits(&out), bits(&product(&mm, Picked { x: &other, rows: &[0, 1] }, n_out, n_out)));
        }
    }
}

#[test]
fn ties_round_to_even_and_odd_inputs_are_harmless() {
    let mut rows = QuantRows::new();
    rows.resize(1, 32);
    for isa in Isa::available() {
        let mut x = [0.0; 32];
        (x[0], x[1], x[2], x[3]) = (127.0, 0.5, 1.5, -2.5);
        quantize_row(isa, &x, rows.row_mut(0));
        assert_eq!(rows.row(0).codes[..4], [127, 0, 2, -2]);
        for x in [[0.0; 32], [1e-40; 32], [-0.0; 32]] {
            quantize_row(isa, &x, rows.row_mut(0));
            let row = rows.row(0);
            assert!(row.scales[0] == 0.0 && row.codes.iter().all(|&c| c == 0) && row.sums == [0, 0]);
        }
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[9] = odd;
            quantize_row(isa, &x, rows.row_mut(0));
            assert!(rows.row(0).scales[0].is_nan() && rows.row(0).codes.iter().all(|&c| c == 0));
            let weight = blocks(TensorType::Q4_0, 16, &mut Noise(3), None);
            let mm = QuantMatMul::new(isa, TensorType::Q4_0, &weight, (16, 32));
            let out = product(&mm, Picked { x: &rows, rows: &[0] }, 16, 16);
            assert!(out.iter().all(|v| v.is_nan()));
        }
    }
}

#[test]
fn threads_write_different_rows() {
    let (rows, n_in, isa) = (8, 96, Isa::detect());
    let values: Vec<Vec<f32>> =
        (0..rows).map(|r| (0..n_in).map(|k| (r * n_in + k) as f32).collect()).collect();
    let (mut apart, mut together) = (QuantRows::new(), QuantRows::new());
    apart.resize(rows, n_in);
    together.resize(rows, n_in);
    for (values, out) in values.iter().zip(apart.rows_mut()) {
        quantize_row(isa, values, out);
    }
    std::thread::scope(|scope| {
        for (row, values) in values.iter().enumerate() {
            let together = &together;
            // SAFETY: every thread has a row of its own, and they are read after the scope.
            scope.spawn(move || quantize_row(isa, values, unsafe { together.row_shared(row) }));
        }
    });
    for row in 0..rows {
        let (a, b) = (apart.row(row), together.row(row));
        assert!(a.codes == b.codes && a.scales == b.scales && a.sums == b.sums);
    }
}

#[test]
fn supports_whole_blocks_of_block_formats() {
    assert!(FORMATS.iter().all(|&(ty, _)| supports(ty, 512)));
    assert!(supports(TensorType::Q4_0, 96) && !supports(TensorType::Q4K, 96));
    assert!(!supports(TensorType::F16, 256) && !supports(TensorType::Q4_0, 0));
}

#[test]
#[should_panic(expected = "bytes of a q4_0 matrix")]
fn a_matrix_of_the_wrong_length_is_refused() {
    QuantMatMul::new(Isa::Portable, TensorType::Q4_0, &[0; 17], (1, 32));
}
