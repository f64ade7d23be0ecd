//! Speed of every encoder on one thread, in values that are in the cache:
//! `cargo run --profile benchmark -p hf2q-quant --example encoders`.

use std::io::Write;
use std::time::{Duration, Instant};

use hf2q_quant::{encodable, quantize, quantize_weighted};

const COLUMNS: usize = 1024;
const ROWS: usize = 16;
const ROUNDS: usize = 100;

/// Sums of four uniform numbers: nearly normal.
fn values(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| uniform() + uniform() + uniform() + uniform()).collect()
}

/// The fastest of many runs, as gigabytes of `f32` per second.
fn speed(mut run: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut out = Vec::new();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        out.clear();
        let start = Instant::now();
        run(&mut out);
        best = best.min(start.elapsed());
    }
    (ROWS * COLUMNS * size_of::<f32>()) as f64 / best.as_secs_f64() / 1e9
}

fn main() -> std::io::Result<()> {
    let x = values(ROWS * COLUMNS);
    let weights: Vec<f32> = (0..COLUMNS).map(|i| 0.1 + (i * 37 % 101) as f32).collect();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{:8} {:>8} {:>14}", "type", "GB/s", "with weights")?;
    for ty in encodable() {
        let plain = speed(|out| quantize(ty, &x, out).expect("small numbers"));
        let weighted = speed(|out| quantize_weighted(ty, &x, &weights, out).expect("small numbers"));
        writeln!(stdout, "{:8} {plain:>8.3} {weighted:>14.3}", ty.name())?;
    }
    Ok(())
}
