//! Prints the time of attention in decoding by cache format:
//! `cargo run --profile benchmark -p hf2q-conformance --example attention -- [threads] [contexts] [head_dim] [heads] [kv_heads] [once]`;
//! `once` adds caches that store one vector for keys and values

use std::io::Write;

use hf2q_conformance::perf_attention::{AttentionOptions, Stored, measure_attention};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_plan::{Backend, KvFormat};

/// Keys and values, and one vector for both.
fn with_one_vector(two: Stored) -> Vec<Stored> {
    let format = match two {
        Stored::Two(format, _) | Stored::One(format) => format,
    };
    vec![two, Stored::One(format)]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let contexts = arguments.get(1).map_or("8192,32768", String::as_str);
    let one_vector = arguments.get(5).is_some_and(|a| a == "once");
    let backend = CpuBackend::new(CpuOptions { threads: number(0, 2)?, isa: None })?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", backend.describe())?;
    for context in contexts.split(',') {
        let mut formats: Vec<_> = KvFormat::ALL.map(|f| Stored::Two(f, f)).to_vec();
        // The first is what the others are compared with.
        formats.swap(0, 1);
        if one_vector {
            formats = formats.into_iter().flat_map(with_one_vector).collect();
        }
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
            let (us, fastest) = (t.seconds * 1e6, t.fastest * 1e6);
            let name = match t.stored {
                Stored::Two(format, _) => format.name().to_owned(),
                Stored::One(format) => format!("{} once", format.name()),
            };
            let (ratio, best) = (t.ratio, t.fastest / timings[0].fastest);
            writeln!(
                out,
                "  {name:9} {us:9.1} us, {ratio:.3} of the first; fastest {fastest:9.1} us, {best:.3}"
            )?;
        }
    }
    Ok(())
}
