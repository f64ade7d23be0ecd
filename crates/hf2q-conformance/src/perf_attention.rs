//! Time of attention in decoding, by cache format.
//!
//! Programs of all formats are held at once and run in turns, so that what disturbs one round disturbs all of its
//! formats: ratios within a round are worth more than seconds.

use std::sync::Arc;
use std::time::Instant;

use hf2q_plan::{
    AttentionParams, Backend, FormedKeys, GroupStep, KvFormat, Limits, PAGE, Pairing, Passes, Plan, Program,
    RopeParams, Row, RowKind, Step,
};

use crate::builder::{Builder, Built, Values};
use crate::cases::plain_rope;
use crate::error::ConformanceError;
use crate::random::Random;

/// What a cache stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Keys and values, in these formats.
    Two(KvFormat, KvFormat),
    /// Values of which keys are formed; a quarter of their pairs turns.
    One(KvFormat),
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionOptions {
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// What is compared, the first with all others.
    pub formats: Vec<Stored>,
    /// Positions that are seen.
    pub context: usize,
    /// Layers of a step, each with a cache of its own: what one leaves in the processor's caches does not help the next.
    pub layers: usize,
    /// Steps of each format.
    pub rounds: usize,
}

/// Times of one format.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionTiming {
    /// What of.
    pub stored: Stored,
    /// Median seconds of a layer.
    pub seconds: f64,
    /// Seconds of a layer in the fastest round: what counts where other work disturbs most rounds.
    pub fastest: f64,
    /// Median over the rounds of the time of this format over that of the first.
    pub ratio: f64,
    /// Bytes of the cache that a layer reads.
    pub bytes: usize,
}

/// Times a step of one row.
///
/// # Errors
/// If a program fails.
pub fn measure_attention(
    backend: &dyn Backend,
    options: &AttentionOptions,
) -> Result<Vec<AttentionTiming>, ConformanceError> {
    let open = |&stored: &Stored| Ready::open(backend, options, stored);
    let mut ready = options.formats.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut seconds = vec![vec![]; ready.len()];
    for round in 0..=options.rounds {
        for (ready, seconds) in ready.iter_mut().zip(&mut seconds) {
            let start = Instant::now();
            ready.program.run(&ready.step, None)?;
            // The first round warms up.
            if round > 0 {
                seconds.push(start.elapsed().as_secs_f64() / options.layers as f64);
            }
        }
    }
    let timing = |(i, &stored): (usize, &Stored)| {
        let vector = match stored {
            Stored::Two(k, v) => k.bytes(options.head_dim) + v.bytes(options.head_dim),
            Stored::One(format) => format.bytes(options.head_dim),
        };
        let ratios = seconds[i].iter().zip(&seconds[0]).map(|(s, first)| s / first);
        AttentionTiming {
            stored,
            seconds: median(seconds[i].clone()),
            fastest: seconds[i].iter().copied().fold(f64::INFINITY, f64::min),
            ratio: median(ratios.collect()),
            bytes: options.context * options.kv_heads * vector,
        }
    };
    Ok(options.formats.iter().enumerate().map(timing).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A program whose caches are filled, and the step that is timed.
struct Ready {
    program: Box<dyn Program>,
    step: Step,
}

impl Ready {
    fn open(backend: &dyn Backend, o: &AttentionOptions, stored: Stored) -> Result<Self, ConformanceError> {
        let Built { recording, weights, .. } = record(o, stored)?;
        let pages = o.context.div_ceil(PAGE).max(1);
        let limits = Limits { max_rows: PAGE, max_logit_rows: 1, pages: vec![pages] };
        let plan = Arc::new(Plan::compile(recording, Passes::NONE));
        let mut program = backend.open(plan, weights, &limits)?;
        let mut table: Vec<u32> = (0..pages as u32).collect();
        Random::new("perf", 1).shuffle(&mut table);
        for &page in &table {
            // Every page as the first of a sequence: attention over all of the context is not for filling it.
            program.run(&step(&[page], (0, PAGE))?, None)?;
        }
        Ok(Self { program, step: step(&table, (o.context.max(1) - 1, 1))? })
    }
}

/// Rows of one sequence with these pages.
fn step(table: &[u32], (first, count): (usize, usize)) -> Result<Step, ConformanceError> {
    let row = |i: usize| Row {
        sequence: 0,
        token: ((7 * i + table.len()) % 64) as u32,
        position: (first + i) as u32,
        parent: i.checked_sub(1).map(|p| p as u32),
    };
    let slot = |p: usize| table[p / PAGE] * PAGE as u32 + (p % PAGE) as u32;
    let group = GroupStep {
        slots: (first..first + count).map(slot).collect(),
        page_tables: table.to_vec(),
        pages_per_sequence: table.len(),
    };
    Ok(Step::new((0..count).map(row).collect(), vec![group], vec![0])?)
}

fn record(o: &AttentionOptions, stored: Stored) -> Result<Built, ConformanceError> {
    let mut b = Builder::new(64, Random::new("perf", 1));
    let kv_width = o.kv_heads * o.head_dim;
    let q = b.input("q", o.heads * o.head_dim, Values::Normal(1.0));
    let k = b.input("k", kv_width, Values::Normal(1.0));
    let v = b.input("v", kv_width, Values::Normal(1.0));
    let pairs = o.head_dim / 2;
    let factors: Vec<f32> = (0..pairs).map(|i| if i < pairs / 4 { 1.0 } else { 1e30 }).collect();
    let factors = Some(b.vector("factors", &factors));
    let rope = RopeParams { factors, base: 1e6, ..plain_rope(o.head_dim, Pairing::Halves) };
    let weight = Some(b.near_one("norm", o.head_dim));
    let group = b.r.group("g", None);
    let mut out = q;
    for i in 0..o.layers {
        b.r.prefix(format!("layer{i}"));
        let cache = match stored {
            Stored::Two(k_format, v_format) => {
                let cache = b.r.cache(group, o.kv_heads, o.head_dim, (k_format, v_format));
                b.r.kv_store("store", k, v, cache);
                cache
            }
            Stored::One(format) => {
                let keys = FormedKeys { weight, rope, pairs: pairs / 4 };
                let cache = b.r.value_cache(group, o.kv_heads, o.head_dim, (format, keys));
                b.r.value_store("store", v, cache);
                cache
            }
        };
        let scale = 1.0 / (o.head_dim as f32).sqrt();
        out = b.r.attention("attention", q, cache, AttentionParams { heads: o.heads, scale, softcap: None });
    }
    b.r.prefix("");
    Ok(b.finish(out, RowKind::Step, false)?)
}
