//! Time of single operations.
//!
//! A recording with several copies of an operation (each with weights of its own, so that no cache holds them) is
//! compared with one that has a single copy; the difference is the operation's.
//! What a copy needs besides (a route for experts, the store before attention) counts with it, and copies may run
//! at the same time, as the projections of a layer do.

use std::sync::Arc;
use std::time::Instant;

use hf2q_gguf::TensorType;
use hf2q_plan::{
    Activation, AttentionParams, Backend, Cost, ExpertInput, KvFormat, Limits, Norm, PAGE, Pairing, Passes,
    Plan, Renormalize, Row, RowKind, StepSize, View, Weight,
};

use crate::builder::{Builder, Built, Values};
use crate::cases;
use crate::error::ConformanceError;
use crate::paging::Pages;
use crate::random::Random;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Width of activations, a multiple of 512.
    pub width: usize,
    /// Row counts.
    pub rows: Vec<usize>,
    /// Types of matrices.
    pub types: Vec<TensorType>,
    /// Positions that attention sees.
    pub context: usize,
    /// Runs of which the fastest counts.
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            width: 2048,
            rows: vec![1, 128],
            types: vec![
                TensorType::Q4_0,
                TensorType::Q8_0,
                TensorType::Q4K,
                TensorType::Q6K,
                TensorType::F16,
            ],
            context: 1024,
            repeats: 5,
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// The operation, as [`hf2q_plan::Op::kind`] names it.
    pub op: &'static str,
    /// Its format and shape.
    pub case: String,
    /// Rows of the step.
    pub rows: usize,
    /// Seconds of one operation.
    pub seconds: f64,
    /// Its work.
    pub cost: Cost,
}

impl Timing {
    /// Bytes of weights and activations per second.
    pub fn bytes_per_second(&self) -> f64 {
        (self.cost.weight_bytes + self.cost.activation_bytes) as f64 / self.seconds
    }

    /// Multiplications and additions of matrix products per second.
    pub fn flops(&self) -> f64 {
        self.cost.flops as f64 / self.seconds
    }
}

const COPIES: usize = 9;

/// Appends the `i`-th copy of an operation.
type Record = Box<dyn Fn(&mut Builder, usize, View) -> View>;

struct Bench {
    op: &'static str,
    case: String,
    record: Record,
}

/// Times the operations that dominate a model.
///
/// # Errors
/// If a program fails.
pub fn measure(backend: &dyn Backend, options: &Options) -> Result<Vec<Timing>, ConformanceError> {
    let mut timings = vec![];
    for bench in benches(options) {
        for &rows in &options.rows {
            let (many, cost) = seconds(backend, &bench, (COPIES, rows), options)?;
            let (one, _) = seconds(backend, &bench, (1, rows), options)?;
            let seconds = ((many - one) / (COPIES - 1) as f64).max(1e-9);
            timings.push(Timing { op: bench.op, case: bench.case.clone(), rows, seconds, cost });
        }
    }
    Ok(timings)
}

fn benches(o: &Options) -> Vec<Bench> {
    let width = o.width;
    let mut all = vec![];
    let mut add = |op, case: String, record: Record| all.push(Bench { op, case, record });
    for &ty in &o.types {
        let matrix = move |b: &mut Builder, i: usize, x: View| {
            let w = b.matrix(&format!("w{i}"), ty, width, width);
            b.r.mat_mul(&format!("op{i}"), x, w)
        };
        add("mat_mul", format!("{ty} {width} to {width}"), Box::new(matrix));
        let experts = move |b: &mut Builder, i: usize, x: View| {
            let w = Weight { ty, cols: width, rows: width / 4, experts: 8 };
            let w = b.weight(&format!("w{i}"), w);
            let route = (Renormalize::Chosen, None);
            let (chosen, _) = b.r.route(&format!("route{i}"), x.columns(0, 8), 2, route);
            b.r.expert_mat_mul(&format!("op{i}"), x, chosen, (w, ExpertInput::Shared))
        };
        let case = format!("{ty} {width} to {}, 2 of 8", width / 4);
        add("expert_mat_mul", case, Box::new(experts));
    }
    add(
        "rms_norm",
        format!("width {width}"),
        Box::new(|b, i, x| {
            let weight = Some(b.near_one(&format!("w{i}"), x.width));
            b.r.rms_norm(&format!("op{i}"), x, Norm { weight, eps: 1e-6 })
        }),
    );
    add(
        "rope",
        format!("heads of 128, width {width}"),
        Box::new(|b, i, x| b.r.rope(&format!("op{i}"), x, 128, cases::plain_rope(128, Pairing::Halves))),
    );
    add(
        "glu",
        format!("width {}", width / 2),
        Box::new(|b, i, x| {
            let half = x.width / 2;
            b.r.glu(&format!("op{i}"), x.columns(0, half), x.columns(half, half), Activation::GeluTanh)
        }),
    );
    for format in [KvFormat::F32, KvFormat::F16] {
        let case = format!("{} heads of 128 on {}, {}", width / 128, width / 512, format.name());
        add(
            "attention",
            case,
            Box::new(move |b, i, x| {
                let group = b.r.group(&format!("g{i}"), None);
                b.r.prefix(format!("c{i}"));
                let cache = b.r.cache(group, x.width / 512, 128, (format, format));
                b.r.prefix("");
                let kv = x.columns(0, x.width / 4);
                b.r.kv_store(&format!("store{i}"), kv, kv, cache);
                let params = AttentionParams { heads: x.width / 128, scale: 0.1, softcap: None };
                b.r.attention(&format!("op{i}"), x, cache, params)
            }),
        );
    }
    all
}

/// Seconds of the fastest run, and the cost of one operation.
fn seconds(
    backend: &dyn Backend,
    bench: &Bench,
    (copies, rows): (usize, usize),
    o: &Options,
) -> Result<(f64, Cost), ConformanceError> {
    let mut b = Builder::new(64, Random::new("perf", 1));
    let x = b.input("x", o.width, Values::Normal(1.0));
    let mut out = x;
    for i in 0..copies {
        out = (bench.record)(&mut b, i, x);
    }
    let Built { recording, weights, .. } = b.finish(out, RowKind::Step, false)?;
    let size = StepSize { rows, logit_rows: 1, held: o.context };
    let op = recording.ops.iter().find(|n| n.name == "op0").map(|n| recording.cost(&n.op, size));
    let pages = (o.context + rows).div_ceil(PAGE);
    let limits =
        Limits { max_rows: rows.max(PAGE), max_logit_rows: 1, pages: vec![pages; recording.groups.len()] };
    let mut program =
        backend.open(Arc::new(Plan::compile(recording.clone(), Passes::NONE)), weights, &limits)?;
    let mut paging = Pages::new(&recording.groups, pages, (1, Random::new("perf", 1)));
    let chunk = |from: usize, count: usize| -> Vec<Row> {
        let row = |i: usize| Row {
            sequence: 0,
            token: (i % 64) as u32,
            position: (from + i) as u32,
            parent: i.checked_sub(1).map(|p| p as u32),
        };
        (0..count).map(row).collect()
    };
    let filled = if recording.caches.is_empty() { 0 } else { o.context };
    for from in (0..filled).step_by(PAGE) {
        let count = PAGE.min(filled - from);
        program.run(&paging.step(&chunk(from, count), &[], &Default::default())?, None)?;
    }
    let step = paging.step(&chunk(filled, rows), &[0], &Default::default())?;
    let mut fastest = f64::INFINITY;
    for _ in 0..=o.repeats {
        let start = Instant::now();
        program.run(&step, None)?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok((fastest, op.unwrap_or_default()))
}
