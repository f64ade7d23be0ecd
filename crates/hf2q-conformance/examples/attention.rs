//! Prints the time of attention in decoding by cache format:
//! `cargo run --profile benchmark -p hf2q-conformance --example attention -- [threads] [contexts] [head_dim] [heads] [kv_heads]`

use std::io::Write;

use hf2q_conformance::perf_attention::{AttentionOptions, measure_attention};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_plan::{Backend, KvFormat};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let contexts = arguments.get(1).map_or("8192,32768", String::as_str);
    let backend = CpuBackend::new(CpuOptions { threads: number(0, 2)?, isa: None })?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", backend.describe())?;
    for context in contexts.split(',') {
        let mut formats: Vec<_> = KvFormat::ALL.map(|f| (f, f)).to_vec();
        // The first is what the others are compared with.
        formats.swap(0, 1);
        let options = AttentionOptions {
            head_dim: number(2, 256)?,
            heads: number(3, 8)?,
            kv_heads: number(4, 4)?,
            formats,
            context: context.parse()?,
            layers: 3,
            rounds: 21,
        };
        let (heads, kv_heads, head_dim) = (options.heads, options.kv_heads, options.head_dim);
        writeln!(out, "{context} positions, {heads} heads of {head_dim} on {kv_heads}")?;
        let timings = measure_attention(&backend, &options)?;
        for t in &timings {
            let (name, us, fastest) = (t.formats.0.name(), t.seconds * 1e6, t.fastest * 1e6);
            let (ratio, best) = (t.ratio, t.fastest / timings[0].fastest);
            writeln!(
                out,
                "  {name:5} {us:9.1} us, {ratio:.3} of the first; fastest {fastest:9.1} us, {best:.3}"
            )?;
        }
    }
    Ok(())
}
