//! Speed of the quantized matrix products on one core: `quant_mat_mul [TYPE ...]`.
//!
//! One row is limited by memory: GB/s of weight bytes. Many rows are limited by arithmetic: billions of integer
//! multiplications and additions a second. Each figure is the best of several runs.

#![expect(unsafe_code, reason = "the output of a product is a raw pointer")]

use std::io::{self, Write};
use std::time::{Duration, Instant};

use hf2q_cpu::isa::Isa;
use hf2q_cpu::kernels::quant_mat_mul::{
    OutputRows, Picked, QuantMatMul, QuantRows, Scratch, quantize_row, supports,
};
use hf2q_gguf::TensorType;

/// Output and input lengths.
const SHAPES: [(usize, usize); 3] = [(2048, 640), (640, 2048), (32768, 640)];
const LONG_SHAPES: [(usize, usize); 3] = [(1536, 768), (1024, 2048), (32768, 768)];
const ROWS: [usize; 5] = [1, 2, 4, 32, 256];

fn main() -> io::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |ty: &TensorType| wanted.is_empty() || wanted.iter().any(|name| name == ty.name());
    let mut out = io::stdout().lock();
    for isa in Isa::available() {
        for ty in TensorType::all().filter(&wanted) {
            let shapes = if ty.block_len() == 256 { LONG_SHAPES } else { SHAPES };
            for (n_out, n_in) in shapes.into_iter().filter(|&(_, n_in)| supports(ty, n_in)) {
                write!(out, "{:8} {:7} {n_out:6} x {n_in:4} ", isa.name(), ty.name())?;
                report(&mut out, isa, ty, (n_out, n_in))?;
            }
        }
    }
    Ok(())
}

fn report(out: &mut impl Write, isa: Isa, ty: TensorType, (n_out, n_in): (usize, usize)) -> io::Result<()> {
    let bytes = ty.row_bytes(n_in).unwrap_or(0) * n_out;
    // Read as a scale of any format, these bytes are neither subnormal nor infinite.
    let weight: Vec<u8> = (0..bytes).map(|i| 40 + (i * 37 % 61) as u8).collect();
    let mm = QuantMatMul::new(isa, ty, &weight, (n_out, n_in));
    for rows in ROWS {
        let operations = 2.0 * (rows * n_out * n_in) as f64;
        let seconds = time(&mm, isa, rows, (n_out, n_in)).as_secs_f64();
        let (gb, gop) = (bytes as f64 / seconds / 1e9, operations / seconds / 1e9);
        write!(out, " | {rows:3} rows {gb:6.2} GB/s {gop:6.1} GOP/s")?;
        out.flush()?;
    }
    writeln!(out)
}

/// The best time of one product.
fn time(mm: &QuantMatMul<'_>, isa: Isa, rows: usize, (n_out, n_in): (usize, usize)) -> Duration {
    let mut x = QuantRows::new();
    x.resize(rows, n_in);
    let values: Vec<f32> = (0..n_in).map(|i| (i as f32 * 0.7).sin()).collect();
    for row in x.rows_mut() {
        quantize_row(isa, &values, row);
    }
    let picks: Vec<u32> = (0..rows as u32).collect();
    let mut result = vec![0.0; rows * n_out];
    // SAFETY: the rows are those of `result`, which nobody else touches.
    let to = unsafe { OutputRows::new(result.as_mut_ptr(), n_out, &picks) };
    let mut scratch = Scratch::new();
    let (mut best, start) = (Duration::MAX, Instant::now());
    while best == Duration::MAX || start.elapsed() < Duration::from_millis(300) {
        let begin = Instant::now();
        mm.run(Picked { x: &x, rows: &picks }, 0..n_out, &to, &mut scratch);
        best = best.min(begin.elapsed());
    }
    best
}
